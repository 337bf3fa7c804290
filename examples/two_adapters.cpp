// Several adapters that train beside each other on one frozen base, and sample with the weights as
// they are: nothing is copied or written in between. They share the passes over the base, in
// training and in sampling, and each gets the numbers that it would get alone.
//   two_adapters        (no arguments, no files)
#include <ATen/ATen.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "temper/generate/engine.h"
#include "temper/models/files/load.h"
#include "temper/tinker/adapter.h"
#include "temper/train/forward_pass.h"

namespace train = temper::train;
using temper::tinker::TrainedAdapter;

// One step of next-token prediction, each adapter on its row. The means of -log p before it.
std::vector<float> learn(temper::models::CausalLM& model,
                         const std::vector<TrainedAdapter*>& adapters,
                         const std::vector<std::vector<int32_t>>& rows) {
  train::ForwardPass pass;
  for (size_t i = 0; i < rows.size(); ++i)
    pass.add({.segments = {{.tokens = rows[i], .labels = rows[i]}}}, i, adapters[i]->index());
  const at::Tensor logp = train::token_logp(model, pass, {}).logp;
  std::vector<at::Tensor> losses;
  for (const train::ForwardPass::Span& row : pass.spans)
    losses.push_back(logp.slice(0, row.begin, row.end).neg().mean());
  at::stack(losses).sum().backward();  // a row's loss reaches the weights of its adapter alone
  std::vector<float> means;
  for (const at::Tensor& loss : losses) means.push_back(loss.item<float>());
  for (TrainedAdapter* adapter : adapters) adapter->step({.learning_rate = 2e-3});
  return means;
}

int main() {
  const temper::Json config = {{"model_type", "llama"},      {"vocab_size", 50},
                               {"hidden_size", 64},          {"intermediate_size", 128},
                               {"num_hidden_layers", 2},     {"num_attention_heads", 2},
                               {"tie_word_embeddings", true}};
  const auto model =
      temper::models::init_model(temper::models::HfConfig::parse(config, "two_adapters"), 1);
  temper::tinker::AdapterPlaces places(*model);
  TrainedAdapter up(places, {.rank = 8, .seed = 1}), down(places, {.rank = 4, .seed = 2});
  const std::vector<int32_t> rising{1, 2, 3, 4, 5, 6, 7, 8}, falling{8, 7, 6, 5, 4, 3, 2, 1};
  temper::generate::GenerationOptions greedy;
  greedy.sampling.temperature = 0;
  greedy.max_new_tokens = 3;
  for (int step = 1; step <= 100; ++step) {
    const std::vector<float> loss = learn(*model, {&up, &down}, {rising, falling});
    std::cout << "step " << step << " loss " << loss[0] << " " << loss[1];
    // Both sample in the same passes, with what they have learnt so far.
    temper::generate::generate(*model, {{1, 2, 3}, {8, 7, 6}}, 1, greedy,
                               [](const temper::generate::Completion& c) {
                                 std::cout << (c.index == 0 ? " up" : " down");
                                 for (const int32_t token : c.tokens) std::cout << " " << token;
                               },
                               nullptr, {}, {}, {up.index(), down.index()});
    std::cout << std::endl;
  }
}
