// Requests of several adapters that share passes: answers and weights are those of requests that
// are made alone.
#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include <cmath>
#include <string>

#include "temper/base/error.h"
#include "temper/tinker/forward_backward.h"
#include "tests/tinker/shared_adapters.h"

using namespace temper;
using namespace temper::tinker;
using namespace temper::tinker::shared;

namespace {

WireTensor numbers(std::vector<double> values) {
  WireTensor tensor;
  tensor.shape = {static_cast<int64_t>(values.size())};
  tensor.values = std::move(values);
  return tensor;
}

// A request of a loss over some of the adapter's rows.
LossBatch batch_of(size_t adapter, const std::string& loss, bool forward_only = false) {
  ForwardBackwardRequest request;
  request.loss_fn = loss;
  request.forward_only = forward_only;
  for (const std::vector<int32_t>& row : words_of(adapter)) {
    WireDatum& datum = request.data.emplace_back();
    datum.tokens.assign(row.begin(), row.end() - 1);
    WireTensor& targets = datum.inputs["target_tokens"];
    targets.is_integer = true;
    targets.integers = {row.begin() + 1, row.end()};
    targets.shape = {std::ssize(targets.integers)};
    std::vector<double> some, old;
    for (size_t i = 0; i + 1 < row.size(); ++i) {
      some.push_back(i == 0 ? 0 : std::sin(static_cast<double>(i + adapter)));
      old.push_back(-4 + 0.1 * static_cast<double>(i));
    }
    if (loss == "cross_entropy") {
      datum.inputs["weights"] = numbers(some);
    } else {
      datum.inputs["advantages"] = numbers(some);
      datum.inputs["logprobs"] = numbers(old);
    }
  }
  return check_batch(std::move(request), {kWords, 512});
}

const char* const kLosses[] = {"cross_entropy", "ppo", "importance_sampling", "dro"};

// Runs requests until all are done or failed: all together, or each by itself. Their answers; an
// error's text.
std::vector<std::string> answers(std::vector<std::unique_ptr<ForwardBackward>> requests,
                                 bool together) {
  std::vector<std::string> found(requests.size());
  std::vector<ForwardBackward*> left;
  for (const auto& request : requests) left.push_back(request.get());
  while (!left.empty()) {
    if (together)
      ForwardBackward::step_together(left);
    else
      for (ForwardBackward* request : left) ForwardBackward::step_together({&request, 1});
    std::erase_if(left, [&](ForwardBackward* request) {
      size_t i = 0;
      while (requests[i].get() != request) ++i;
      try {
        if (request->done()) found[i] = request->result();
      } catch (const DataError& e) {
        found[i] = e.what();
      }
      return !found[i].empty();
    });
  }
  return found;
}

}  // namespace

TEST_CASE("requests with different losses share passes; what they give and train is their own" *
          doctest::test_suite("exact")) {
  const auto run = [](bool together) {
    const auto model = shared_model("qwen3", true);
    Adapters adapters(*model, kForms);
    std::vector<std::string> all;
    std::vector<Gradients> gradients;
    for (int step = 0; step < 3; ++step) {
      std::vector<std::unique_ptr<ForwardBackward>> requests;
      for (size_t i = 0; i < kForms.size(); ++i)
        requests.push_back(std::make_unique<ForwardBackward>(
            *model, *adapters.all[i], batch_of(i, kLosses[i], step == 1 && i == 2), 24));
      const std::vector<std::string> some = answers(std::move(requests), together);
      all.insert(all.end(), some.begin(), some.end());
      for (const auto& adapter : adapters.all) {
        const Gradients now = adapter->take_gradients();
        adapter->put_gradients(now);
        gradients.push_back(now);
        if (step != 0) adapter->step({.learning_rate = 1e-2, .grad_clip_norm = 0.5});
      }
    }
    for (const auto& adapter : adapters.all) gradients.push_back(adapter->take_gradients());
    return std::pair(all, gradients);
  };
  const auto alone = run(false), together = run(true);
  CHECK(alone.first == together.first);
  REQUIRE(alone.second.size() == together.second.size());
  for (size_t i = 0; i < alone.second.size(); ++i)
    for (size_t k = 0; k < alone.second[i].size(); ++k) {
      const at::Tensor &a = alone.second[i][k], &b = together.second[i][k];
      REQUIRE(a.defined() == b.defined());
      if (a.defined()) CHECK(same_numbers(a, b));
    }
}

TEST_CASE("a request whose numbers are not finite fails alone; the others get theirs") {
  const auto run = [](bool with_broken) {
    const auto model = shared_model("llama", false);
    Adapters adapters(*model, {kForms.begin(), kForms.begin() + 3});
    if (with_broken)
      model->visit({.linear = [&](const std::string&, nn::Linear& layer) {
        nn::Lora* const lora = layer.adapter(adapters.all[1]->index());
        if (!lora) return;
        lora->lora_B.weight.trained().detach().fill_(std::nanf(""));
        lora->lora_B.weight.mark_updated();
      }});
    std::vector<std::unique_ptr<ForwardBackward>> requests;
    for (size_t i = 0; i < 3; ++i)
      requests.push_back(
          std::make_unique<ForwardBackward>(*model, *adapters.all[i], batch_of(i, kLosses[i]), 64));
    const std::vector<std::string> found = answers(std::move(requests), with_broken);
    std::vector<Gradients> gradients;
    for (const auto& adapter : adapters.all) gradients.push_back(adapter->take_gradients());
    return std::pair(found, gradients);
  };
  const auto whole = run(false), broken = run(true);
  CHECK(broken.first[1].find("not finite") != std::string::npos);
  for (const at::Tensor& gradient : broken.second[1]) CHECK(!gradient.defined());
  for (const size_t i : {0, 2}) {
    CHECK(broken.first[i] == whole.first[i]);
    check_gradients_same(broken.second[i], whole.second[i]);
  }
}
