#include "temper/models/split.h"

#include "temper/base/error.h"
#include "temper/models/head.h"
#include "temper/nn/blocks.h"
#include "temper/nn/experts.h"
#include "temper/nn/state_layers.h"

namespace temper::models {

void split(nn::Module& model, const Family& family, const std::shared_ptr<dist::Group>& tensor,
           const std::string& key, const std::string& where) {
  const int ranks = tensor->size();
  if (ranks == 1) return;
  bool any = false;
  const auto divides = [&](const std::string& name, const char* of, int64_t extent) {
    any = true;
    check<ConfigError>(extent % ranks == 0, key, ": ", ranks, " ranks do not divide the ", extent,
                       " ", of, " of `", name, "` (", where, ")");
  };
  model.visit(
      {.linear =
           [&](const std::string& path, nn::Linear& layer) {
             const std::string name = path + ".weight";
             const std::optional<Split> how = split_of(family, name);
             if (!how) return;
             const bool columns = *how == Split::kColumns;
             divides(name, columns ? "outputs" : "inputs", columns ? layer.out() : layer.in());
             layer.split(columns ? nn::LinearSplit::kColumns : nn::LinearSplit::kRows, tensor);
           },
       .lm_head =
           [&](const std::string& path, nn::LmHead& head) {
             const std::string name = path + ".weight";
             if (!split_of(family, name)) return;
             divides(name, "tokens", head.weight.shape()[0]);
             head.weight.split(0, tensor);
           },
       .embedding =
           [&](const std::string& path, nn::Embedding& embedding) {
             const std::string name = path + ".weight";
             if (!split_of(family, name)) return;
             divides(name, "tokens", embedding.weight.shape()[0]);
             embedding.split(tensor);
           },
       .attention = [&](const std::string&,
                        nn::Attention& layer) { layer.split(tensor, key + ": " + where); },
       .state_layer = [&](const std::string&,
                          nn::StateLayer& layer) { layer.split(tensor, key + ": " + where); }});
  check<ConfigError>(any, key, ": models of type ", family.model_type,
                     " have no rules of how their layers split; expected 1");
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
