// A teacher behind an address.
#include "temper/distill/teacher_server.h"

#include <ATen/ATen.h>

#include <atomic>
#include <cmath>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <thread>

#include "temper/base/json.h"
#include "temper/distill/teacher_route.h"
#include "temper/distill/top_tokens.h"
#include "temper/http/client.h"
#include "temper/http/server.h"
#include "temper/models/files/load.h"
#include "temper/serve/server.h"
#include "tests/distill/runs.h"

using namespace temper;
using runs::Arguments;
using runs::with;

namespace {

// `temper serve` of a golden model, on loopback.
struct TeacherAt {
  explicit TeacherAt(const std::string& name, const std::string& digest = "",
                     const std::string& api_key = "")
      : model(models::load_model(runs::model(name))),
        sampling(*model, {}, nullptr, 4),
        route(*model, sampling,
              {.rules = {"127.0.0.1", api_key, {}, {}},
               .model = name,
               .tokens_digest = digest,
               .most_positions = 512}),
        server(options(), &sampling) {
    server.bind();
    listening = std::thread([this] { server.listen(); });
    computing = std::thread(
        [this] { sampling.run([this] { return ends.load(); }, [this] { return route.work(); }); });
    http::Client(http::parse_url(server.address()), "", 60).get("/health");  // it listens
  }
  ~TeacherAt() { end(); }
  void end() {
    if (ends.exchange(true)) return;
    route.close();
    server.stop();
    listening.join();
    computing.join();
  }
  serve::ServerOptions options() {
    serve::ServerOptions o;
    o.port = 0;
    o.models = {{"teacher"}};
    o.other_routes = [this](const http::RequestHead& head) { return route.admit(head); };
    return o;
  }
  std::string post(const std::string& body) const {
    return http::Client(http::parse_url(server.address()), "", 60).post(distill::kTopTokens, body);
  }
  std::string refusal(const std::string& body) const {
    try {
      post(body);
    } catch (const http::Failure& e) {
      CHECK(e.status == 400);
      return e.what();
    }
    return "";
  }
  std::string key(const std::string& more = "") const {
    return "distill.teacher={url: \"" + server.address() + "\"" + more + "}";
  }

  std::unique_ptr<models::CausalLM> model;
  serve::SamplerLoop sampling;
  distill::TeacherRoute route;
  serve::Server server;
  std::atomic<bool> ends{false};
  std::thread listening, computing;
};

struct Runs {
  tiny::Folder folder;
  Arguments keys{"model.path=" + runs::model("gemma2"),
                 "data.train=" + runs::write_rows_with_prompts(folder / "rows.jsonl", 9),
                 "rollout={max_new_tokens: 6, ignore_eos: true}",
                 "train={max_steps: 4, batch_size: 4}",
                 "optimizer.learning_rate=1e-3",
                 "distill.top_k=5"};
  std::string weights(const std::string& name, const Arguments& more) {
    runs::run(folder / name, with(keys, more));
    return read_file(folder / (name + "/final/model.safetensors"));
  }
  std::string error(const Arguments& more) {
    return runs::error_of(folder / "error", with(keys, more));
  }
};

bool has(const std::string& text, const std::string& part) {
  CAPTURE(text);
  const bool found = text.find(part) != std::string::npos;
  CHECK(found);
  return found;
}

}  // namespace

TEST_CASE("a teacher behind an address is the teacher, to the bit") {
  Runs r;
  const TeacherAt teacher("qwen3");
  const std::string here = "distill.teacher=" + runs::model("qwen3");
  for (const Arguments& more :
       {Arguments{"distill.strategy=logit"},
        {"distill.temperature=1.7", "distill.divergence=jsd", "train.micro_batch_tokens=32"},
        {"distill.strategy=on_policy", "distill.divergence=reverse_kl",
         "distill.off_policy_fraction=0.25"}}) {
    CAPTURE(more[0]);
    const std::string own = r.weights("own", with({here}, more)),
                      remote = r.weights("remote", with({teacher.key()}, more)),
                      other = r.weights("other", with({here, "distill.top_k=4"}, more));
    CHECK(remote == own);
    CHECK(other != own);
    for (const char* name : {"own", "remote", "other"})
      std::filesystem::remove_all(r.folder / name);
  }
  // Beside one of this process.
  const std::string both =
      r.weights("both", {"distill.alpha=1", "distill.teacher=[{path: " + runs::model("qwen3") +
                                                "}, {url: \"" + teacher.server.address() + "\"}]"});
  CHECK(both == r.weights("one", {"distill.alpha=1", here}));
}

namespace {

// A teacher with these logits after every token.
class LogitsAt : public http::Handler {
 public:
  explicit LogitsAt(std::vector<float> logits) : logits_(std::move(logits)), server_(*this, {}) {
    port_ = server_.bind("127.0.0.1", 0);
    REQUIRE(port_ != 0);
    thread_ = std::thread([this] { server_.run(); });
  }
  ~LogitsAt() override {
    server_.stop();
    thread_.join();
  }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
  // The k likeliest at a temperature, of equals the lower id first.
  std::vector<int64_t> likeliest(float temperature, size_t k) const {
    std::vector<int64_t> ids(logits_.size());
    std::iota(ids.begin(), ids.end(), 0);
    std::ranges::stable_sort(ids, std::greater(), [&](int64_t id) {
      return logits_[static_cast<size_t>(id)] / temperature;
    });
    ids.resize(k);
    return ids;
  }
  std::atomic<int64_t> most_asked = 0;

  http::Admission admit(const http::RequestHead& head) override {
    if (head.method == "GET")
      return {.answer = http::Answer{.body = dump_json({{"vocab_size", logits_.size()}})},
              .handle = {}};
    return {.answer = {},
            .handle =
                [this](const std::shared_ptr<http::Exchange>& exchange) {
                  const Json ask = parse_json(exchange->body(), "request");
                  const int64_t k = ask["top_k"], places = std::ssize(ask["places"]);
                  most_asked = std::max(most_asked.load(), k);
                  const at::Tensor id = at::tensor(likeliest(1, static_cast<size_t>(k)));
                  const at::Tensor logit = at::tensor(logits_).index_select(0, id);
                  exchange->answer({200,
                                    distill::top_tokens_bytes(
                                        {id.repeat({places, 1}), logit.repeat({places, 1})}),
                                    "application/octet-stream"});
                },
            .most_body_bytes = 1 << 20};
  }
  http::Answer refusal(int status, const std::string&) override { return {.status = status}; }
  void done(const http::RequestHead&, int, int64_t, double) override {}

 private:
  const std::vector<float> logits_;
  http::Server server_;
  int port_ = 0;
  std::thread thread_;
};

}  // namespace

TEST_CASE("logits that a temperature makes equal are those of the lower ids, however many") {
  Runs r;
  train::Policy policy;
  policy.model = models::load_model(runs::model("qwen3"));
  const auto size = static_cast<size_t>(policy.model->vocab_size);
  constexpr double kTemperature = 1.7;
  constexpr size_t kKept = 5;
  // Neighbours that the division joins, from the likelier: 1.9f and the next ones below.
  std::vector<float> values{1.9F};
  while (values.size() < 64) values.push_back(std::nextafter(values.back(), 0.0F));
  size_t first = 0;
  const auto scaled = [&](size_t i) { return values[i] / static_cast<float>(kTemperature); };
  while (first + 1 < values.size() && scaled(first) != scaled(first + 1)) ++first;
  REQUIRE(first + 1 < values.size());
  // How many tokens have the upper one of the two: the lower one's, with the lowest id of all that
  // are equal then, is further behind the kept ones each time.
  for (const size_t upper : {1, 3, 8, 20}) {
    CAPTURE(upper);
    std::vector<float> logits(size, -9.0F);
    for (size_t i = 0; i + 1 < kKept; ++i) logits[size - 1 - i] = 7.0F - static_cast<float>(i);
    for (size_t i = 0; i < upper; ++i) logits[10 + i] = values[first];
    logits[3] = values[first + 1];
    LogitsAt teacher(logits);
    const distill::DistillConfig config = runs::config(
        with(r.keys, {"distill.teacher={url: \"" + teacher.url() + "\"}", "distill.temperature=1.7",
                      "output_dir=" + (r.folder / "none")}));
    const auto server = distill::open_teacher_server(config, config.distill.teacher.at(0), policy);
    train::ForwardPass pass;
    pass.forest->add_root(std::vector<int32_t>{1, 2, 3});
    pass.row_M = {0, 1};
    pass.target_M = {2, 3};
    const ops::TopTokens found = server->top_tokens(pass);
    const std::vector<int64_t> expected =
        teacher.likeliest(static_cast<float>(kTemperature), kKept);
    REQUIRE(expected.back() == 3);
    REQUIRE(teacher.likeliest(1, kKept).back() == 10);
    for (int64_t place = 0; place < 2; ++place)
      CHECK(at::equal(found.id[place], at::tensor(expected)));
    CHECK(teacher.most_asked == (upper < 4 ? 9 : upper < 9 ? 18 : 36));
  }
}

TEST_CASE("a run whose teacher is gone ends with a checkpoint and goes on from there") {
  Runs r;
  const std::string whole =
      r.weights("whole", {"distill.teacher=" + runs::model("qwen3"), "train.save_every=1"});
  TeacherAt first("qwen3");
  const Arguments gone = with(r.keys, {first.key(), "train.save_every=1"});
  int asked = 0;
  const auto run = [&](const Arguments& arguments, const std::function<bool()>& stop) {
    Arguments all = with(arguments, {"output_dir=" + (r.folder / "gone"), "metrics.sinks=[jsonl]",
                                     "train.eval_samples=0"});
    distill::DistillConfig config = runs::config(all);
    std::ostringstream console;
    distill::run_distill(config, {console, false, stop});
  };
  std::string why;
  try {
    run(gone, [&] {
      if (++asked == 3) first.end();
      return false;
    });
  } catch (const RunError& e) {
    why = e.what();
  }
  has(why, "distill.teacher: " + first.server.address());
  has(why, "failed 4 times");
  CHECK(!std::filesystem::exists(r.folder / "gone/final"));
  has(r.error({first.key()}), "there?); start it first: temper serve");

  const TeacherAt second("qwen3");
  run(with(r.keys, {second.key(), "train.save_every=1"}), [] { return false; });
  CHECK(read_file(r.folder / "gone/final/model.safetensors") == whole);
}

TEST_CASE("what a teacher behind an address cannot do is refused by name") {
  Runs r;
  const TeacherAt teacher("qwen3"), locked("qwen3", "", "secret");
  const auto error = [&](const Arguments& more) { return r.error(with({teacher.key()}, more)); };
  has(error({"distill.top_k=0"}), "distill.top_k");
  has(error({"distill.top_k=100000"}), "less than the vocabulary's");
  has(error({"distill.strategy=feature_pooling"}), "expected logit or on_policy");
  has(error({"distill.strategy=on_policy", "distill.lambda=0", "distill.seq_kd=true"}),
      "it samples nothing");
  has(error({"distill.cross_tokenizer=uld", "distill.top_k=0"}), "whole vocabularies");
  has(error({"distill.teacher_logprobs=x"}), "a file with a teacher behind a url");
  has(r.error({teacher.key(", path: x")}), "`path` and `url`, expected one");
  has(r.error({"distill.teacher={weight: 2}"}), "without `path` or `url`");
  has(r.error({"distill.teacher={url: nowhere}"}), "nowhere");
  has(r.error({locked.key()}), "401");
  has(r.error({locked.key(", api_key_env: NO_SUCH_KEY_AT_ALL")}), "NO_SUCH_KEY_AT_ALL");
  serve::ServerOptions none;
  none.port = 0;
  serve::Server server(none, nullptr);
  server.bind();
  std::thread listening([&] { server.listen(); });
  has(r.error({"distill.teacher={url: \"" + server.address() + "\"}"}),
      "a teacher needs a temper serve");
  server.stop();
  listening.join();
}

TEST_CASE("the route for likeliest tokens says what is wrong with a request") {
  const TeacherAt t("qwen3");
  const auto size = static_cast<size_t>(t.model->vocab_size);
  const std::string answer =
      t.post(R"({"tokens": [[1, 2], [3], [4, 5]], "parent": [-1, 0, -1], "places": [2, 0, 4],
                 "top_k": 3})");
  CHECK(answer.size() == 3 * 3 * 8);
  // A place's numbers depend on its own path alone.
  CHECK(t.post(R"({"tokens": [[4, 5]], "places": [1], "top_k": 3})").substr(0, 12) ==
        answer.substr(24, 12));
  CHECK(t.post(R"({"tokens": [[1, 2, 3]], "places": [2], "top_k": 3})").substr(12) ==
        answer.substr(36, 12));
  has(t.refusal("{"), "JSON");
  has(t.refusal("[]"), "object");
  has(t.refusal(R"({"places": [0], "top_k": 1})"), "`tokens`");
  has(t.refusal(R"({"tokens": [[1, 99999999]], "places": [0], "top_k": 1})"), "99999999");
  has(t.refusal(R"({"tokens": [[1], []], "places": [0], "top_k": 1})"), "segment 1 is empty");
  has(t.refusal(R"({"tokens": [[1], [2]], "parent": [-1, 1], "places": [0], "top_k": 1})"),
      "`parent`");
  has(t.refusal(R"({"tokens": [[1], [2], [3]], "parent": [-1, -1, 0], "places": [], "top_k": 1})"),
      "`parent`");
  has(t.refusal(R"({"tokens": [[1]], "places": [1], "top_k": 1})"), "`places`");
  has(t.refusal(R"({"tokens": [[1]], "places": [0], "top_k": 0})"), "`top_k`");
  has(t.refusal(R"({"tokens": [[1]], "places": [0], "top_k": )" + std::to_string(size + 1) + "}"),
      "`top_k`");
  std::string many = "0";
  for (int i = 1; i < 600; ++i) many += ", 0";
  has(t.refusal(R"({"tokens": [[)" + many + R"(]], "places": [0], "top_k": 1})"), "positions");
}

TEST_CASE("a request's trees are the forest that its segments make one by one") {
  std::mt19937 random(3);
  for (int round = 0; round < 20; ++round) {
    Forest expected;
    Json segments = Json::array(), parents = Json::array();
    std::vector<int64_t> open;  // segments that may be continued
    for (int i = 0; i < 40; ++i) {
      std::vector<int32_t> ids(1 + random() % 3);
      for (int32_t& id : ids) id = static_cast<int32_t>(random() % 50);
      if (random() % 2 == 0) open.resize(random() % (open.size() + 1));
      const int64_t parent = open.empty() ? -1 : open.back();
      open.push_back(parent < 0 ? expected.add_root(ids) : expected.add_child(parent, ids));
      segments.push_back(ids);
      parents.push_back(parent);
    }
    const Json body{{"tokens", segments}, {"parent", parents}, {"places", {0}}, {"top_k", 1}};
    const auto ask = distill::parse_top_tokens(dump_json(body), 50, 512);
    const Forest& found = *ask.pass.forest;
    CHECK(found.tokens == expected.tokens);
    CHECK(found.position == expected.position);
    CHECK(found.segment_start == expected.segment_start);
    CHECK(found.parent == expected.parent);
    CHECK(found.subtree_end == expected.subtree_end);
    CHECK(found.shift == expected.shift);
    CHECK((found.rotation == expected.rotation && found.open == expected.open));
  }
  // Each segment the only child of the one before: minutes, if each walked up to the root.
  constexpr int64_t kDeep = 1 << 20;
  std::string tokens, parents;
  for (int64_t s = 0; s < kDeep; ++s) {
    tokens += s == 0 ? "[1]" : ",[1]";
    parents += s == 0 ? "-1" : "," + std::to_string(s - 1);
  }
  const auto deep = distill::parse_top_tokens(
      "{\"tokens\":[" + tokens + "],\"parent\":[" + parents + "],\"places\":[0],\"top_k\":1}", 50,
      kDeep);
  CHECK(deep.pass.forest->position.back() == kDeep - 1);
  CHECK(deep.pass.forest->subtree_end[5] == kDeep);
}

TEST_CASE("more trees than a pass holds give what each gives alone") {
  const auto model = models::load_model(runs::model("qwen3"));
  constexpr int32_t kTrees = 20, kRoot = 480, kChild = 20;  // 10,000 tokens, in two passes
  const auto add = [&](train::ForwardPass& pass, int32_t tree) {
    const auto segment = [&](int32_t count, int32_t by) {
      std::vector<int32_t> ids;
      for (int32_t i = 0; i < count; ++i) ids.push_back(3 + (i * by + tree) % 50);
      return ids;
    };
    const int64_t root = pass.forest->add_root(segment(kRoot, 7));
    pass.row_M.push_back(pass.forest->num_tokens() - 1);
    pass.forest->add_child(root, segment(kChild, 11));
    pass.row_M.push_back(pass.forest->num_tokens() - 1);
  };
  distill::TopTokensAsk all{.pass = {}, .top_k = 3};
  for (int32_t tree = 0; tree < kTrees; ++tree) add(all.pass, tree);
  const ops::TopTokens found = distill::likeliest_of(*model, all);
  for (int32_t tree = 0; tree < kTrees; ++tree) {
    CAPTURE(tree);
    distill::TopTokensAsk one{.pass = {}, .top_k = 3};
    add(one.pass, tree);
    const ops::TopTokens alone = distill::likeliest_of(*model, one);
    CHECK(at::equal(found.id.narrow(0, 2 * tree, 2), alone.id));
    CHECK(at::equal(found.logit.narrow(0, 2 * tree, 2), alone.logit));
  }
}
