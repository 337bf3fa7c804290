#include "temper/models/split.h"

#include "temper/base/error.h"
#include "temper/models/head.h"
#include "temper/nn/blocks.h"
#include "temper/nn/experts.h"
#include "temper/nn/state_layers.h"

namespace temper::models {

void split(nn::Module& model, const std::shared_ptr<dist::Group>& tensor, const std::string& key,
           const std::string& where) {
  const int ranks = tensor->size();
  if (ranks == 1) return;
  const auto divides = [&](const std::string& path, const char* of, int64_t extent) {
    check<ConfigError>(extent % ranks == 0, key, ": ", ranks, " ranks do not divide the ", extent,
                       " ", of, " of `", path, ".weight` (", where, ")");
  };
  model.visit(
      {.linear =
           [&](const std::string& path, nn::Linear& layer) {
             if (layer.may_split() == nn::LinearSplit::kNone) return;
             const bool columns = layer.may_split() == nn::LinearSplit::kColumns;
             divides(path, columns ? "outputs" : "inputs", columns ? layer.out() : layer.in());
             layer.split(tensor);
           },
       .lm_head =
           [&](const std::string& path, nn::LmHead& head) {
             divides(path, "tokens", head.weight.shape()[0]);
             head.weight.split(tensor);
           },
       .embedding =
           [&](const std::string& path, nn::Embedding& embedding) {
             divides(path, "tokens", embedding.weight.shape()[0]);
             embedding.split(tensor);
           },
       .attention = [&](const std::string&,
                        nn::Attention& layer) { layer.split(tensor, key + ": " + where); },
       .state_layer = [&](const std::string&,
                          nn::StateLayer& layer) { layer.split(tensor, key + ": " + where); }});
}

bool split_experts(nn::Module& model, const std::shared_ptr<dist::Group>& ranks,
                   const std::string& key, const std::string& where) {
  bool any = false;
  model.visit({.experts = [&](const std::string& path, nn::Experts& experts) {
    any = true;
    check<ConfigError>(experts.size() % static_cast<size_t>(ranks->size()) == 0, key, ": ",
                       ranks->size(), " ranks do not divide the ", experts.size(), " experts of `",
                       path, "` (", where, ")");
    experts.divide(ranks);
  }});
  return any;
}

}  // namespace temper::models
