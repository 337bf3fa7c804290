// Requests of several models that wait at the same time.
#include "temper/tinker/service.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "temper/base/file.h"
#include "tests/generate/tiny.h"

using namespace temper;
using namespace temper::tinker;

namespace {

class TinyServer {
 public:
  TinyServer()
      : directory_(temporary_directory() + "/temper_service_" + std::to_string(::getpid())),
        model_(generate::tiny::model(61, {2})),
        loop_(*model_, {.cache_bytes = 1 << 20}, nullptr, 16) {
    std::filesystem::remove_all(directory_);
    ServiceOptions options;
    options.names = {"tiny"};
    options.most_positions = 512;
    options.pass_tokens = 32;
    service.emplace(*model_, loop_, options, directory_);
    session_ = service->create_session(Json::object(), "")["session_id"];
  }
  ~TinyServer() {
    service.reset();
    std::filesystem::remove_all(directory_);
  }

  std::string create(int64_t rank) {
    const Json made = service->create_model({{"session_id", session_},
                                             {"model_seq_id", models_++},
                                             {"base_model", "tiny"},
                                             {"lora_config", {{"rank", rank}, {"seed", rank}}}});
    all();
    return made["model_id"];
  }
  // Everything that waits; how many slices it took.
  int64_t all() {
    int64_t slices = 0;
    while (service->work()) ++slices;
    return slices;
  }
  // What a future became; empty: nothing yet.
  std::string result(const Json& future) {
    const auto found = std::make_shared<std::string>();
    service->futures().retrieve(future["request_id"],
                                [found](serve::Answer answer) { *found = answer.body; });
    return *found;
  }
  Json step(const std::string& model) {
    return service->optim_step({{"model_id", model}, {"adam_params", {{"learning_rate", 0.02}}}});
  }

  std::optional<Service> service;

 private:
  const std::string directory_;
  std::unique_ptr<models::CausalLM> model_;
  serve::SamplerLoop loop_;
  std::string session_;
  int64_t models_ = 0;
};

// Next-token prediction on `rows` rows of six tokens.
ForwardBackwardRequest request_of(const std::string& model, int64_t rows, const char* loss) {
  ForwardBackwardRequest request;
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
            request_of(models[i], clients[i].rows, clients[i].loss)));
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
    ForwardBackwardRequest request = request_of(model, 1, loss);
    request.seq_id = seq;
    return server.service->forward_backward(std::move(request));
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
  server.service->refuse_unread({model, 1}, DataError("an image"));
  server.service->refuse_unread({"nobody", 1}, DataError("an image"));
  server.service->refuse_unread({model, 0}, DataError("an image"));
  const Json wrong{{"model_id", model}, {"seq_id", 2}, {"sampling_session_seq_id", "two"}};
  CHECK_THROWS_AS(server.service->save_weights_for_sampler(wrong), DataError);
  const Json flag{{"model_id", model}, {"seq_id", 3}, {"path", "p"}, {"optimizer", "yes"}};
  CHECK_THROWS_AS(server.service->load_weights(flag), DataError);
  ForwardBackwardRequest request = request_of(model, 1, "cross_entropy");
  request.seq_id = 4;
  const Json last = server.service->forward_backward(std::move(request));
  server.all();
  CHECK(!server.result(last).empty());
}
