// Requests of several models that wait at the same time.
#include "temper/tinker/service/service.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "temper/base/ascii.h"
#include "temper/base/file.h"
#include "temper/serve/asked.h"
#include "tests/generate/tiny.h"
#include "tests/golden.h"

using namespace temper;
using namespace temper::tinker;

namespace {

constexpr const char *kMe = "me", *kOther = "other";  // owners

class TinyServer {
 public:
  using Change = std::function<void(ServiceOptions&)>;
  // loop: that samples, in place of one of its own.
  explicit TinyServer(const Change& change = {}, serve::SamplerLoop* loop = nullptr)
      : directory_(temporary_directory() + "/temper_service_" + std::to_string(::getpid())),
        model_(generate::tiny::model(61, {2})),
        own_loop_(*model_, {.cache_bytes = 1 << 20}, nullptr, 16) {
    std::filesystem::remove_all(directory_);
    ServiceOptions options;
    options.names = {"tiny"};
    options.most_positions = 512;
    options.pass_tokens = 32;
    if (change) change(options);
    service.emplace(*model_, loop ? *loop : own_loop_, options, directory_);
    session = open_session();
  }
  ~TinyServer() {
    service.reset();
    std::filesystem::remove_all(directory_);
  }

  std::string create(int64_t rank) {
    const Json made =
        service->create_model(kMe, {{"session_id", session},
                                    {"model_seq_id", models_++},
                                    {"base_model", "tiny"},
                                    {"lora_config", {{"rank", rank}, {"seed", rank}}}});
    all();
    return made["model_id"];
  }
  std::string open_session(const char* owner = kMe) {
    return service->create_session(owner, Json::object(), "")["session_id"];
  }
  // Everything that waits; how many slices it took.
  int64_t all() {
    int64_t slices = 0;
    while (service->work()) ++slices;
    return slices;
  }
  // What a future became; empty: nothing yet.
  std::string result(const Json& future, const char* owner = kMe) {
    const auto found = std::make_shared<std::string>();
    service->futures().retrieve(owner, future["request_id"],
                                [found](http::Answer answer) { *found = answer.body; });
    return *found;
  }
  Json step(const std::string& model) {
    return service->optim_step(kMe,
                               {{"model_id", model}, {"adam_params", {{"learning_rate", 0.02}}}});
  }

  std::optional<Service> service;
  std::string session;

 private:
  const std::string directory_;
  std::unique_ptr<models::CausalLM> model_;
  serve::SamplerLoop own_loop_;
  int64_t models_ = 0;
};

// Next-token prediction on `rows` rows of six tokens.
ForwardBackwardRequest request_of(const std::string& model, int64_t seq, int64_t rows,
                                  const char* loss) {
  ForwardBackwardRequest request;
  request.seq_id = seq;
  request.model_id = model;
  request.loss_fn = loss;
  for (int64_t r = 0; r < rows; ++r) {
    WireDatum& datum = request.data.emplace_back();
    WireTensor& targets = datum.inputs["target_tokens"];
    for (int64_t i = 0; i < 6; ++i) {
      datum.tokens.push_back(static_cast<int32_t>((7 * r + 3 * i * i) % 61));
      targets.integers.push_back((7 * r + 3 * (i + 1) * (i + 1)) % 61);
    }
    targets.is_integer = true;
    targets.shape = {6};
    if (std::string(loss) == "cross_entropy") continue;
    for (const char* name : {"advantages", "logprobs"}) {
      datum.inputs[name].values.assign(6, -1.5);
      datum.inputs[name].shape = {6};
    }
  }
  return request;
}

}  // namespace

TEST_CASE("requests that wait together share passes, and are answered as alone" *
          doctest::test_suite("exact")) {
  struct Client {
    int64_t rank, rows;
    const char* loss;
  };
  const std::vector<Client> clients{
      {3, 2, "cross_entropy"}, {4, 1, "ppo"}, {5, 7, "cross_entropy"}, {2, 2, "cispo"}};
  const auto run = [&](bool together) {
    TinyServer server;
    std::vector<std::string> models, answers;
    for (const Client& client : clients) models.push_back(server.create(client.rank));
    int64_t slices = 0;
    for (int step = 0; step < 3; ++step) {
      std::vector<Json> futures;
      for (size_t i = 0; i < clients.size(); ++i) {
        futures.push_back(server.service->forward_backward(
            kMe, request_of(models[i], 2 * step + 1, clients[i].rows, clients[i].loss)));
        futures.push_back(server.step(models[i]));
        if (!together) slices += server.all();
      }
      if (together) slices += server.all();
      for (const Json& future : futures) {
        answers.push_back(server.result(future));
        CHECK(!answers.back().empty());
      }
    }
    return std::pair(answers, slices);
  };
  const auto alone = run(false), together = run(true);
  CHECK(alone.first == together.first);
  // Seven rows take two passes of 32 tokens. Alone it is five passes and four steps of optimizers a
  // round; together the first, second and fourth client share one pass.
  CHECK(alone.second == 3 * 9);
  CHECK(together.second == 3 * 7);
}

TEST_CASE("each model's requests keep their order, and what is refused is refused alone") {
  TinyServer server;
  const std::string first = server.create(3), second = server.create(4);
  const auto send = [&](const std::string& model, int64_t seq, const char* loss) {
    return server.service->forward_backward(kMe, request_of(model, seq, 1, loss));
  };
  const Json late = send(first, 2, "cross_entropy"), other = send(second, 1, "cross_entropy");
  server.all();
  CHECK(server.result(late).empty());  // its predecessor has not come
  CHECK(!server.result(other).empty());
  CHECK_THROWS_AS(send(second, 2, "no such loss"), DataError);
  const Json early = send(first, 1, "cross_entropy"), next = send(second, 3, "ppo");
  CHECK(server.service->work());  // one pass of both
  CHECK(!server.result(early).empty());
  CHECK(!server.result(next).empty());
  CHECK(server.result(late).empty());
  server.all();
  CHECK(server.result(late) == server.result(early));  // nothing was learnt between them
}

TEST_CASE("requests that cannot be read use up their numbers, too") {
  TinyServer server;
  const std::string model = server.create(3);
  server.service->refuse_unread(kMe, {model, 1}, DataError("an image"));
  server.service->refuse_unread(kMe, {"nobody", 1}, DataError("an image"));
  server.service->refuse_unread(kMe, {model, 0}, DataError("an image"));
  server.service->refuse_unread(kOther, {model, 2}, DataError("an image"));
  const Json wrong{{"model_id", model}, {"seq_id", 2}, {"sampling_session_seq_id", "two"}};
  CHECK_THROWS_AS(server.service->save_weights_for_sampler(kMe, wrong), DataError);
  const Json flag{{"model_id", model}, {"seq_id", 3}, {"path", "p"}, {"optimizer", "yes"}};
  CHECK_THROWS_AS(server.service->load_weights(kMe, flag), DataError);
  const Json last = server.service->forward_backward(kMe, request_of(model, 4, 1, "cross_entropy"));
  server.all();
  CHECK(!server.result(last).empty());
}

namespace {

// The same with `columns` targets a position.
ForwardBackwardRequest wide_request(const std::string& model, int64_t seq, int64_t columns,
                                    bool forward_only) {
  ForwardBackwardRequest request = request_of(model, seq, 8, "cross_entropy");
  request.forward_only = forward_only;
  for (WireDatum& datum : request.data) {
    WireTensor& targets = datum.inputs["target_tokens"];
    std::vector<int64_t> all;
    for (const int64_t id : targets.integers)
      for (int64_t k = 0; k < columns; ++k) all.push_back((id + k) % 61);
    targets.integers = std::move(all);
    targets.shape = {6, columns};
  }
  return request;
}

}  // namespace

TEST_CASE("many targets a position come in slices; who cancels, unloads or leaves ends them") {
  // 48 positions, of which 32 are taken at once, as they have so many targets. A slice is the
  // body's, or a part of the head's, forward or backward.
  constexpr int64_t kColumns = 4096;
  TinyServer server([](ServiceOptions& o) { o.pass_tokens = 64; });
  const auto error_of = [&](const Json& future) {
    const std::string text = server.result(future);
    return text.starts_with("{") ? std::string(parse_json(text, "result").value("error", "")) : "";
  };
  for (const bool forward_only : {true, false}) {
    CAPTURE(forward_only);
    const std::string model = server.create(3);
    const auto send = [&](int64_t seq, int64_t columns) {
      return server.service->forward_backward(kMe, wide_request(model, seq, columns, forward_only));
    };
    const Json few = send(1, 2);
    CHECK(server.all() == 1);
    CHECK(!server.result(few).empty());
    const Json whole = send(2, kColumns);
    CHECK(server.all() == (forward_only ? 3 : 5));
    CHECK(!server.result(whole).empty());
    // A request that is cancelled within a pass uses up its number and leaves no gradient behind.
    const Json before = send(3, 2);
    server.all();
    const Json cancelled = send(4, kColumns), after = send(5, 2);
    CHECK(server.service->work());
    CHECK(server.result(cancelled).empty());
    server.service->cancel(kOther, {{"request_id", cancelled["request_id"]}});
    CHECK(server.service->work());
    CHECK(server.result(cancelled).empty());
    server.service->cancel(kMe, {{"request_id", cancelled["request_id"]}});
    server.all();
    CHECK(error_of(cancelled) == "the request was cancelled");
    CHECK(server.result(after) == server.result(before));
    CHECK(send(4, kColumns) == cancelled);  // its retry
    const Json unloaded = send(6, kColumns);
    CHECK(server.service->work());
    server.service->unload_model(kMe, {{"model_id", model}});
    CHECK(server.all() == 1);
    CHECK(error_of(unloaded) == "the model was unloaded");
  }
  const std::string model = server.create(3);
  const Json left = server.service->forward_backward(kMe, wide_request(model, 1, kColumns, false));
  CHECK(server.service->work());
  server.service->finish_session(kMe, server.session, Json::object());
  CHECK(server.all() == 1);
  CHECK(error_of(left).find("session has finished") != std::string::npos);
}

TEST_CASE("what has many targets a position is answered beside others as alone" *
          doctest::test_suite("exact")) {
  const auto run = [](int64_t columns, bool beside) {
    TinyServer server([](ServiceOptions& o) { o.pass_tokens = 64; });
    const std::string model = server.create(3), other = server.create(4);
    std::vector<std::string> found;
    for (int64_t step = 0; step < 2; ++step) {
      const Json future =
          server.service->forward_backward(kMe, wide_request(model, 2 * step + 1, columns, false));
      if (beside)
        server.service->forward_backward(kMe, request_of(other, step + 1, 3, "cross_entropy"));
      const Json stepped = server.step(model);
      server.all();
      found.push_back(server.result(future));
      found.push_back(server.result(stepped));
    }
    return found;
  };
  CHECK(run(4096, false) == run(4096, true));
  CHECK(run(2, false) == run(2, true));
}

TEST_CASE("what one key's clients have made is not there for another's") {
  TinyServer server;
  const std::string model = server.create(3);
  Service& service = *server.service;
  const Json saved_future =
      service.save_weights(kMe, {{"model_id", model}, {"seq_id", 1}, {"path", "first"}});
  server.all();
  const std::string path = parse_json(server.result(saved_future), "result")["path"];
  CHECK(server.result(saved_future, kOther).find("unknown") != std::string::npos);
  const std::string sampler = service.create_sampling_session(
      kMe, {{"session_id", server.session}, {"base_model", "tiny"}})["sampling_session_id"];
  const std::string theirs = server.open_session(kOther);

  const auto not_found = [&](const auto& call) {
    try {
      call();
      return false;
    } catch (const serve::Refusal& e) {
      return e.status == 404;
    }
  };
  const Json by_model{{"model_id", model}, {"seq_id", 2}, {"path", "second"}};
  const Json by_session{{"session_id", server.session},
                        {"model_seq_id", 9},
                        {"base_model", "tiny"},
                        {"lora_config", {{"rank", 1}}}};
  const Json load{{"session_id", theirs}, {"model_seq_id", 0}, {"path", path}};
  const Json sampling{{"session_id", theirs}, {"model_path", path}};
  const Json prompt{{"chunks", {{{"type", "encoded_text"}, {"tokens", {1, 2}}}}}};
  CHECK(not_found([&] { service.get_info(kOther, by_model); }));
  CHECK(not_found([&] { service.optim_step(kOther, by_model); }));
  CHECK(not_found([&] { service.save_weights(kOther, by_model); }));
  CHECK(not_found([&] { service.save_weights_for_sampler(kOther, by_model); }));
  CHECK(not_found([&] { service.load_weights(kOther, by_model); }));
  CHECK(not_found([&] { service.unload_model(kOther, by_model); }));
  CHECK(not_found(
      [&] { service.forward_backward(kOther, request_of(model, 2, 1, "cross_entropy")); }));
  CHECK(not_found([&] { service.create_model(kOther, by_session); }));
  CHECK(not_found([&] { service.create_sampling_session(kOther, by_session); }));
  CHECK(not_found([&] { service.finish_session(kOther, server.session, Json::object()); }));
  CHECK(not_found([&] { service.session(kOther, server.session); }));
  CHECK(not_found([&] { service.sampler(kOther, sampler); }));
  CHECK(not_found(
      [&] { service.sample(kOther, {{"sampling_session_id", sampler}, {"prompt", prompt}}); }));
  CHECK(not_found([&] { service.training_run(kOther, model); }));
  CHECK(not_found([&] { service.checkpoints(kOther, model, 10, 0); }));
  CHECK(not_found([&] { service.store().remove(kOther, path); }));
  CHECK(not_found([&] { service.store().set_public(kOther, path, true); }));
  CHECK(not_found([&] { service.store().set_expiry(kOther, path, 1); }));
  CHECK_THROWS_AS(service.heartbeat(kOther, {{"session_id", server.session}}), serve::Refusal);
  CHECK(service.training_runs(kOther, 10, 0)["training_runs"].empty());
  CHECK(service.checkpoints(kOther, "", 10, 0)["checkpoints"].empty());
  CHECK(service.sessions(kOther, 10, 0)["sessions"] == Json::array({theirs}));
  CHECK(service.training_runs(kMe, 10, 0)["training_runs"].size() == 1);
  CHECK(service.sessions(kMe, 10, 0)["sessions"] == Json::array({server.session}));
  // A public checkpoint may be read, and nothing else.
  CHECK(not_found([&] { service.weights_info(kOther, {{"tinker_path", path}}); }));
  CHECK(not_found([&] { service.load_weights(kOther, load); }));
  CHECK(not_found([&] { service.create_sampling_session(kOther, sampling); }));
  service.store().set_public(kMe, path, true);
  CHECK(service.weights_info(kOther, {{"tinker_path", path}})["lora_rank"] == 3);
  const Json loaded = service.load_weights(kOther, load);
  server.all();
  CHECK(parse_json(server.result(loaded, kOther), "result").contains("model_id"));
  CHECK(service.training_runs(kOther, 10, 0)["training_runs"].size() == 1);
  CHECK_NOTHROW(service.create_sampling_session(kOther, sampling));
  CHECK(not_found([&] { service.store().remove(kOther, path); }));
}

TEST_CASE("sessions without a model do not lock others out") {
  TinyServer server([](ServiceOptions& o) { o.most_sessions = 8; });
  server.create(2);
  const std::string mine = server.open_session();
  server.service->heartbeat(kMe, {{"session_id", mine}});
  std::vector<std::string> theirs;
  for (int i = 0; i < 50; ++i) theirs.push_back(server.open_session(kOther));
  CHECK_NOTHROW(server.service->heartbeat(kMe, {{"session_id", mine}}));
  CHECK_NOTHROW(server.service->heartbeat(kMe, {{"session_id", server.session}}));
  CHECK_NOTHROW(server.service->heartbeat(kOther, {{"session_id", theirs.back()}}));
  CHECK_THROWS_AS(server.service->heartbeat(kOther, {{"session_id", theirs.front()}}),
                  serve::Refusal);
  for (int i = 0; i < 50; ++i) server.open_session();  // the same key's: those in use stay
  CHECK_NOTHROW(server.service->heartbeat(kMe, {{"session_id", mine}}));
  CHECK_NOTHROW(server.service->heartbeat(kMe, {{"session_id", server.session}}));
}

TEST_CASE("numbers count from 1") {
  TinyServer server;
  const std::string model = server.create(2);
  CHECK_THROWS_WITH_AS(
      server.service->forward_backward(kMe, request_of(model, 0, 1, "cross_entropy")),
      doctest::Contains("from 1 on"), DataError);
  CHECK_THROWS_AS(server.service->optim_step(
                      kMe, {{"model_id", model}, {"seq_id", 0}, {"adam_params", Json::object()}}),
                  DataError);
  const Json first =
      server.service->forward_backward(kMe, request_of(model, 1, 1, "cross_entropy"));
  server.all();
  CHECK(!server.result(first).empty());
}

TEST_CASE("a step whose gradients overflow is the user's fault") {
  TinyServer server;
  const std::string model = server.create(2);
  ForwardBackwardRequest request = request_of(model, 1, 1, "cross_entropy");
  request.data[0].inputs["weights"].values.assign(6, 3e38);
  request.data[0].inputs["weights"].shape = {6};
  server.service->forward_backward(kMe, std::move(request));
  const Json stepped = server.step(model);
  server.all();
  const Json answer = parse_json(server.result(stepped), "result");
  CHECK(answer["category"] == "user");
  CHECK(answer.value("error", "").find("not finite") != std::string::npos);
}

TEST_CASE("samplers whose weights are not kept any more take no place") {
  TinyServer server([](ServiceOptions& o) {
    o.most_snapshots = 2;
    o.most_samplers = 8;
  });
  const std::string model = server.create(2);
  for (int64_t i = 0; i < 20; ++i) {
    const Json saved = server.service->save_weights_for_sampler(
        kMe, {{"model_id", model}, {"seq_id", i + 1}, {"sampling_session_seq_id", i}});
    server.all();
    CHECK(parse_json(server.result(saved), "result").contains("sampling_session_id"));
  }
}

namespace {

std::string base_sampler(TinyServer& server, const std::string& session, const char* owner = kMe) {
  return server.service->create_sampling_session(
      owner, {{"session_id", session}, {"base_model", "tiny"}})["sampling_session_id"];
}

Json sampling_of(const std::string& sampler, int64_t max_tokens) {
  return {{"sampling_session_id", sampler},
          {"num_samples", 1},
          {"sampling_params", {{"max_tokens", max_tokens}, {"temperature", 1}, {"seed", 5}}},
          {"prompt", {{"chunks", {{{"type", "encoded_text"}, {"tokens", {3, 4}}}}}}}};
}

// Two tokens an image.
class TwoTokens : public ImageProcessor {
 public:
  ImageLayout layout(const ImageSize&) const override {
    ImageTile tile;
    tile.token_rows = 1;
    tile.token_columns = 2;
    return {.canvases = {}, .tiles = {tile}};
  }
  std::string expand(const ImageLayout&) const override { return ""; }
};

// Log-probabilities of 299 positions with 900 targets each, which take several slices.
Json scoring_of(const std::string& sampler) {
  constexpr int64_t kLength = 300, kColumns = 900;
  Json body = sampling_of(sampler, 1);
  std::vector<int64_t> tokens, targets;
  for (int64_t i = 0; i < kLength; ++i) tokens.push_back(3 + i % 50);
  for (int64_t i = 0; i < (kLength - 1) * kColumns; ++i) targets.push_back(i % 61);
  body["prompt"]["chunks"][0]["tokens"] = tokens;
  body["target_prompt_logprobs"] = {{"data", targets}, {"shape", {kLength - 1, kColumns}}};
  return body;
}

bool is_refused(const std::function<void()>& act, const char* words) {
  try {
    act();
  } catch (const Error& e) {
    return std::string(e.what()).find(words) != std::string::npos;
  }
  return false;
}

}  // namespace

TEST_CASE("scores of many targets take turns with training, and nothing short waits for them") {
  TinyServer server;
  const std::string model = server.create(3), sampler = base_sampler(server, server.session);
  std::vector<Json> scorings;
  for (int i = 0; i < 4; ++i) scorings.push_back(server.service->sample(kMe, scoring_of(sampler)));
  const Json trained =
      server.service->forward_backward(kMe, request_of(model, 1, 1, "cross_entropy"));
  for (int slice = 0; slice < 2; ++slice) CHECK(server.service->work());
  CHECK(!server.result(trained).empty());
  // The next slices are scores', unless there is something short to do.
  CHECK(server.service->work());
  const Json unloaded = server.service->unload_model(kMe, {{"model_id", model}});
  CHECK(server.service->work());
  CHECK(!server.result(unloaded).empty());
  for (const Json& scoring : scorings) {
    CHECK(server.result(scoring).empty());
    server.service->cancel(kMe, {{"request_id", scoring["request_id"]}});
  }
  CHECK(server.all() <= 4);
}

TEST_CASE("images of prompts are decoded beside the requests, once all else is right") {
  auto images = std::make_shared<data::ImageFormat>();
  images->processor = std::make_shared<const TwoTokens>();
  images->token = 60;
  TinyServer server([&](ServiceOptions& o) { o.chunks.images = images; });
  std::string bytes = read_file(golden_path("images/files/grey.png")), text;
  bytes.resize(bytes.size() / 2);  // the header is whole
  append_base64(bytes, text);
  Json body = sampling_of(base_sampler(server, server.session), 4);
  Json& chunks = body["prompt"]["chunks"];
  chunks.push_back({{"type", "image"}, {"data", text}});
  const Json future = server.service->sample(kMe, body);
  std::string result;
  for (int i = 0; i < 5000 && result.empty(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    result = server.result(future);
  }
  CHECK(parse_json(result, "result")["category"] == "user");
  CHECK(result.find("`prompt`: image 1: ") != std::string::npos);
  // Lengths are known from the header.
  std::vector<int64_t> tokens(511, 3);
  chunks[0]["tokens"] = tokens;
  CHECK(is_refused([&] { server.service->sample(kMe, body); }, "found 513 tokens"));
}

TEST_CASE("a full server refuses a request with images at once, before it decodes them") {
  auto images = std::make_shared<data::ImageFormat>();
  images->processor = std::make_shared<const TwoTokens>();
  images->token = 60;
  struct Idle : generate::CompletionSource {
    generate::RequestId submit(generate::Request, generate::Callbacks) override { return 1; }
    void cancel(generate::RequestId) override {}
    bool step(const generate::Callbacks&) override { return false; }
    void rest() override {}
  } source;
  serve::SamplerLoop loop(false, 1);
  loop.begin(source, "initial");
  {
    TinyServer server([&](ServiceOptions& o) { o.chunks.images = images; }, &loop);
    std::string text;
    append_base64(read_file(golden_path("images/files/grey.png")), text);
    Json body = sampling_of(base_sampler(server, server.session), 4);
    body["prompt"]["chunks"].push_back({{"type", "image"}, {"data", text}});
    body["seq_id"] = 1;
    {
      const serve::Reservation other = loop.reserve();
      CHECK_THROWS_AS(server.service->sample(kMe, body), serve::TooManyRequests);
    }
    // Its place is its own from then on, and its number was free again.
    CHECK_NOTHROW(server.service->sample(kMe, body));
    CHECK_THROWS_AS(loop.reserve(), serve::TooManyRequests);
    server.service->close();
  }
  loop.end();
}

TEST_CASE("keys take turns at the engine") {
  struct Source : generate::CompletionSource {
    generate::RequestId submit(generate::Request request, generate::Callbacks) override {
      clients.push_back(request.client);
      return clients.size();
    }
    void cancel(generate::RequestId) override {}
    bool step(const generate::Callbacks&) override { return false; }
    void rest() override {}
    std::vector<uint64_t> clients;
  } source;
  serve::SamplerLoop loop(false, 16);
  loop.begin(source, "initial");
  {
    TinyServer server({}, &loop);
    const std::string mine = base_sampler(server, server.session),
                      theirs = base_sampler(server, server.open_session(kOther), kOther);
    Json body = sampling_of(mine, 4);
    body["sampling_params"]["temperature"] = 0.5;
    body["prompt_logprobs"] = true;  // of a request of its own
    server.service->sample(kMe, body);
    server.service->sample(kOther, sampling_of(theirs, 4));
    server.service->close();
  }
  loop.end();
  const std::vector<uint64_t>& clients = source.clients;
  REQUIRE(clients.size() == 3);
  CHECK(clients[0] != 0);
  CHECK(clients[1] == clients[0]);
  CHECK(clients[2] != 0);
  CHECK(clients[2] != clients[0]);
}

TEST_CASE("one key's sessions leave others a part, however they are used") {
  TinyServer server([](ServiceOptions& o) { o.most_sessions = 32; });
  int64_t opened = 0;
  const auto open = [&](const char* owner) {
    const std::string session = server.open_session(owner);
    base_sampler(server, session, owner);
    ++opened;
  };
  CHECK(is_refused(
      [&] {
        for (int i = 0; i < 40; ++i) open(kMe);
      },
      "too many sessions"));
  CHECK(opened == 30);
  CHECK_NOTHROW(open(kOther));
  CHECK_NOTHROW(open(kOther));
  CHECK(is_refused([&] { open("third"); }, "too many sessions"));
}

TEST_CASE("one key's models leave others a part, by number and by memory") {
  const auto create = [](TinyServer& server, const char* owner, const std::string& session,
                         int64_t number) {
    server.service->create_model(owner, {{"session_id", session},
                                         {"model_seq_id", number},
                                         {"base_model", "tiny"},
                                         {"lora_config", {{"rank", 1}}}});
  };
  const auto fill = [&](TinyServer& server, const char* words) {
    const std::string second = server.open_session(), theirs = server.open_session(kOther);
    int64_t made = 0;
    for (const std::string& session : {server.session, second})
      CHECK(is_refused(
          [&] {
            for (;; ++made) create(server, kMe, session, made);
          },
          words));
    CHECK_NOTHROW(create(server, kOther, theirs, 0));
    return made;
  };
  TinyServer few([](ServiceOptions& o) { o.most_models = 16; });
  CHECK(fill(few, "at most 16 models at once, of which a session may have seven eighths") == 15);
  TinyServer small([](ServiceOptions& o) {
    o.most_models = 100000;
    o.adapter_bytes = 1 << 20;
  });
  CHECK(fill(small, "no memory for the adapter") > 1);
}
