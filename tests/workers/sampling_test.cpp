// Ranks with roles of their own give what this process would have computed, to the bit, and are
// left out when they are gone.
#include <future>
#include <thread>
#include <tuple>

#include "temper/serve/server.h"
#include "temper/workers/model_worker.h"
#include "temper/workers/rank_engine.h"
#include "temper/workers/trained_weights.h"
#include "temper/workers/weights_sender.h"
#include "temper/workers/wire.h"
#include "tests/train/tiny.h"

using namespace temper;
using Kind = train::FrozenSource::Kind;
using generate::Completion;
using generate::remote::PoolOptions;
using generate::remote::ServerPool;

namespace {

generate::GenerationOptions options() {
  generate::GenerationOptions o;
  o.max_new_tokens = 9;
  o.sampling.temperature = 0.8;
  o.sampling.seed = 5;
  o.sampling.top_k = 9;
  o.record_kept = true;
  return o;
}

std::optional<models::LoraConfig> lora_of(bool adapter) {
  if (!adapter) return {};
  models::LoraConfig lora;
  lora.rank = 3;
  return lora;
}

// Moves what trains, as an update would.
void move(train::Policy& policy, double by) {
  const at::NoGradGuard no_grad;
  for (const train::NamedParameter& p : train::trainable_parameters(*policy.model)) {
    at::Tensor value = p.parameter->value().clone();
    value.add_(at::arange(value.numel(), at::kFloat).view(value.sizes()).sin(), by);
    p.parameter->set_value(value);
  }
}

// A rank that samples, on threads of this process.
class Rank {
 public:
  explicit Rank(bool adapter)
      : policy_(tiny::policy(lora_of(adapter))),
        worker_(dist::alone(),
                std::make_unique<workers::Sampling>(policy_, options(), generate::EngineOptions()),
                nullptr),
        server_(server_options(), nullptr) {
    server_.bind();
    listening_ = std::thread([this] { server_.listen(); });
    loop_ = std::thread([this] { worker_.run([this] { return ended_.load(); }); });
  }
  ~Rank() { end(); }
  // As if its process were gone: nobody answers at its address.
  void end() {
    ended_ = true;
    if (loop_.joinable()) loop_.join();
    server_.stop();
    if (listening_.joinable()) listening_.join();
  }
  PoolOptions::Server server() const {
    return {http::parse_url(server_.address()), "key", "a rank"};
  }
  std::atomic<int> asked{0};

 private:
  serve::ServerOptions server_options() {
    serve::ServerOptions o;
    o.port = 0;
    o.api_key = "key";
    o.routes[workers::kSample] = [this](const std::string&, const std::string& body) {
      ++asked;
      return worker_.sample(body);
    };
    o.routes[workers::kWeights] = [this](const std::string& name, const std::string& body) {
      return worker_.take_weights(name, body);
    };
    return o;
  }

  train::Policy policy_;
  workers::ModelWorker worker_;
  serve::Server server_;
  std::atomic<bool> ended_{false};
  std::thread listening_, loop_;
};

PoolOptions pool_of(const std::vector<std::unique_ptr<Rank>>& ranks) {
  PoolOptions pool{.servers = {}, .timeout_seconds = 60, .may_return = false};
  for (const auto& rank : ranks) pool.servers.push_back(rank->server());
  return pool;
}

using Samples =
    std::map<std::pair<int64_t, int64_t>, std::tuple<std::vector<int32_t>, std::vector<float>,
                                                     std::vector<std::vector<int32_t>>>>;

// Three samples of each of five prompts, one of them from the second turn on.
Samples sample(generate::CompletionSource& source) {
  for (int64_t i = 0; i < 5; ++i) {
    generate::Request request{100 + i, tiny::rows(1, i)[0], 3, options()};
    if (i == 4) {
      request.first_sample = 7;
      request.position = 2;
      request.options.max_new_tokens = 4;
    }
    source.submit(request);
  }
  Samples all;
  const auto done = [&](Completion c) {
    all[{c.index, c.sample}] = {c.tokens, c.logprobs, c.kept};
  };
  while (source.step({.done = done, .on_token = {}})) {
  }
  source.rest();
  return all;
}

}  // namespace

TEST_CASE("ranks sample what this process samples, with the weights that they were sent") {
  for (const bool adapter : {false, true}) {
    CAPTURE(adapter);
    train::Policy policy = tiny::policy(lora_of(adapter));
    std::vector<std::unique_ptr<Rank>> ranks;
    for (int i = 0; i < 2; ++i) ranks.push_back(std::make_unique<Rank>(adapter));
    workers::WeightsSender sender(pool_of(ranks), [](size_t) { FAIL("a rank was not sent to"); });
    workers::RankEngine engine(
        std::make_shared<ServerPool>(pool_of(ranks), workers::rank_protocol()), nullptr, 8, {});
    Samples before;
    for (const int64_t version : {0, 1, 4}) {
      if (version > 0) move(policy, 0.2);
      generate::Engine own(*policy.model, {});
      const Samples expected = sample(own);
      CHECK(expected.size() == 15);
      CHECK((expected != before));
      before = expected;
      // The next version may come while this one samples.
      if (version == 1) sender.send(1, workers::trained_weights(*policy.model, true));
      if (version != 1) sender.send(version, workers::trained_weights(*policy.model, true));
      engine.set_version(version);
      CHECK((sample(engine) == expected));
    }
    CHECK(ranks[0]->asked > 0);
    CHECK(ranks[1]->asked > 0);
  }
}

TEST_CASE("what a rank that is gone was asked for others do, at last this process") {
  train::Policy policy = tiny::policy();
  move(policy, 0.2);
  generate::Engine own(*policy.model, {});
  const Samples expected = sample(own);
  std::vector<std::unique_ptr<Rank>> ranks;
  for (int i = 0; i < 2; ++i) ranks.push_back(std::make_unique<Rank>(false));
  workers::WeightsSender sender(pool_of(ranks), [](size_t) {});
  int fell_back = 0;
  const auto pool = std::make_shared<ServerPool>(pool_of(ranks), workers::rank_protocol());
  workers::RankEngine engine(pool, nullptr, 8, [&] {
    ++fell_back;
    return &own;
  });
  engine.set_version(1);
  // Requests wait for weights that never come to the first rank.
  std::thread killer([&] {
    while (ranks[0]->asked == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    ranks[0]->end();
    sender.send(1, workers::trained_weights(*policy.model, true));
  });
  CHECK((sample(engine) == expected));
  killer.join();
  CHECK(fell_back == 0);
  ranks[1]->end();
  CHECK((sample(engine) == expected));
  CHECK((sample(engine) == expected));
  CHECK(fell_back == 1);

  workers::RankEngine alone(std::make_shared<ServerPool>(pool_of(ranks), workers::rank_protocol()),
                            nullptr, 8, {});
  alone.set_version(1);
  CHECK_THROWS_AS(sample(alone), generate::remote::NoServer);
}

TEST_CASE("weights that are not this model's change nothing") {
  train::Policy policy = tiny::policy(), adapted = tiny::policy(lora_of(true));
  const tiny::Weights before = tiny::weights(*adapted.model);
  CHECK_THROWS_WITH_AS(
      workers::set_trained_weights(*adapted.model, workers::trained_weights(*policy.model, true)),
      doctest::Contains("weights of rank 0"), DataError);
  const auto half = std::make_shared<const std::string>(
      workers::trained_weights(*adapted.model, true)->substr(0, 900));
  CHECK_THROWS_AS(workers::set_trained_weights(*adapted.model, half), DataError);
  CHECK(tiny::weights(*adapted.model) == before);
}

TEST_CASE("what is to be scored does not wait for weights; whoever waits at the end hears of it") {
  train::Policy policy = tiny::policy(lora_of(true));
  workers::ModelWorker worker(
      dist::alone(),
      std::make_unique<workers::Sampling>(policy, options(), generate::EngineOptions()),
      std::make_unique<workers::Scoring>(train::FrozenSource{Kind::kBase}.load(policy)));
  std::atomic<bool> ended{false};
  std::thread loop([&] { worker.run([&] { return ended.load(); }); });
  const auto sample = [&](int64_t version) {
    return std::async(std::launch::async, [&worker, version] {
      const generate::Request request{0, tiny::rows(1)[0], 2, options()};
      return workers::parse_completions(worker.sample(workers::sample_text(version, request)))
          .size();
    });
  };
  auto first = sample(0), second = sample(1);
  train::PackUnit row;
  const tiny::Rows rows = tiny::rows(1);
  row.segments = {{-1, rows[0], rows[0], 0}};
  train::ForwardPass pass;
  pass.add(row, 0);
  CHECK(!worker.score(workers::score_text(pass, 1)).empty());
  CHECK(first.wait_for(std::chrono::milliseconds(50)) == std::future_status::timeout);
  const auto weights = workers::trained_weights(*policy.model, true);
  worker.take_weights("0", *weights);
  CHECK(first.get() == 2);
  worker.take_weights("1", *weights);
  CHECK(second.get() == 2);
  CHECK_THROWS_WITH_AS(worker.sample(workers::sample_text(0, {0, tiny::rows(1)[0], 1, options()})),
                       doctest::Contains("asked for weights after 0 updates"), DataError);
  CHECK_THROWS_AS(worker.take_weights("x", *weights), DataError);
  auto third = sample(2);
  while (third.wait_for(std::chrono::milliseconds(100)) != std::future_status::timeout) {
  }
  ended = true;
  CHECK_THROWS_AS(third.get(), RunError);
  loop.join();
  CHECK_THROWS_AS(worker.score(workers::score_text(pass, 1)), RunError);
}

TEST_CASE("a rank that trains may ask for the weights before those that another one asked for") {
  for (const int64_t behind : {0, 1}) {
    CAPTURE(behind);
    train::Policy policy = tiny::policy(lora_of(true));
    workers::ModelWorker worker(
        dist::alone(),
        std::make_unique<workers::Sampling>(policy, options(), generate::EngineOptions(), behind),
        nullptr);
    std::atomic<bool> ended{false};
    std::thread loop([&] { worker.run([&] { return ended.load(); }); });
    const auto sample = [&](int64_t version) {
      const generate::Request request{0, tiny::rows(1)[0], 2, options()};
      return worker.sample(workers::sample_text(version, request));
    };
    train::Policy trained = tiny::policy(lora_of(true));
    worker.take_weights("0", *workers::trained_weights(*trained.model, true));
    const std::string first = sample(0);
    move(trained, 0.2);
    worker.take_weights("1", *workers::trained_weights(*trained.model, true));
    const std::string second = sample(1);
    CHECK(second != first);
    if (behind == 1)
      CHECK((sample(0) == first));
    else
      CHECK_THROWS_AS(sample(0), DataError);
    CHECK((sample(1) == second));
    ended = true;
    loop.join();
  }
}

TEST_CASE("another rank's reference log-probabilities are this process's") {
  train::Policy policy = tiny::policy(lora_of(true));
  move(policy, 0.2);
  const auto reference = train::FrozenSource{Kind::kBase}.load(policy);
  workers::Scoring scoring(train::FrozenSource{Kind::kBase}.load(policy));
  // A prompt with two completions, and a row of its own.
  const tiny::Rows rows = tiny::rows(4);
  train::PackUnit group, row;
  group.segments = {{-1, rows[0], {}, 0}, {0, rows[1], rows[1], 1}, {0, rows[2], rows[2], 2}};
  row.segments = {{-1, rows[3], rows[3], 3}};
  train::ForwardPass pass;
  pass.add(group, 0);
  pass.add(row, 1);
  const at::Tensor whole = reference->token_logp(pass, 0.7);
  // The first target keeps two tokens, the others all.
  auto kept = std::make_shared<ops::KeptTokens>();
  const int32_t first = static_cast<int32_t>(pass.target_M[0]);
  kept->id = {std::min(first, first ^ 1), std::max(first, first ^ 1)};
  kept->offset.assign(static_cast<size_t>(pass.num_targets()) + 1, 2);
  kept->offset[0] = 0;
  pass.kept = kept;
  const at::Tensor own = reference->token_logp(pass, 0.7);
  CHECK_FALSE(tiny::same_bits(whole, own));
  const std::string bytes = scoring.score(workers::score_text(pass, 0.7));
  CHECK(tiny::same_bits(workers::parse_scores(bytes, pass.num_targets()), own));
  CHECK_THROWS_AS(workers::parse_scores(bytes, pass.num_targets() + 1), DataError);
  CHECK_THROWS_AS(scoring.score("{}"), DataError);
  CHECK_THROWS_AS(scoring.score(R"({"tokens":[1],"segment_start":[0,9],"parent":[-1],"rows":[0],
                                   "targets":[1],"temperature":1})"),
                  DataError);
}

TEST_CASE("samples of rewards and their verdicts are read as they were sent") {
  rewards::Sample sample{std::make_shared<const Json>(Json{{"answer", "4"}}),
                         "rows.jsonl:3",
                         {1, 2},
                         {3, 4},
                         {},
                         "2+2=",
                         "4"};
  sample.truncated = true;
  sample.max_new_tokens = 9;
  sample.closing_tokens = {7};
  const auto read = workers::parse_samples(workers::samples_text({&sample, 1}));
  REQUIRE(read.size() == 1);
  CHECK(*read[0].row == *sample.row);
  CHECK(read[0].where == sample.where);
  CHECK(read[0].prompt_tokens == sample.prompt_tokens);
  CHECK(read[0].completion_tokens == sample.completion_tokens);
  CHECK(read[0].prompt == sample.prompt);
  CHECK(read[0].completion == sample.completion);
  CHECK(read[0].truncated);
  CHECK(read[0].has_text);
  CHECK(read[0].max_new_tokens == 9);
  CHECK(read[0].closing_tokens == sample.closing_tokens);
  using Verdict = rewards::Verdict;
  const std::vector<Verdict> verdicts{{Verdict::Kind::kValue, 0.1},
                                      {Verdict::Kind::kTimedOut, 0, "late"}};
  const std::string text = workers::verdicts_text(verdicts);
  const auto again = workers::parse_verdicts(text, 2);
  CHECK(again[0].value == 0.1);
  CHECK(again[1].kind == Verdict::Kind::kTimedOut);
  CHECK(again[1].detail == "late");
  CHECK_THROWS_AS(workers::parse_verdicts(text, 3), DataError);
  CHECK_THROWS_AS(workers::parse_verdicts(R"([{"kind": 9, "value": 1, "detail": ""}])", 1),
                  DataError);
}
