#include "temper/models/split.h"

#include "temper/base/error.h"
#include "temper/models/head.h"
#include "temper/nn/blocks.h"

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
  model.each_module([&](const std::string& path, nn::Module& module) {
    const std::string name = path + ".weight";
    const std::optional<Split> how = split_of(family, name);
    if (auto* attention = dynamic_cast<nn::Attention*>(&module))
      attention->split(tensor, key + ": " + where);
    if (!how) return;
    if (auto* embedding = dynamic_cast<nn::Embedding*>(&module)) {
      divides(name, "tokens", embedding->weight.shape()[0]);
      embedding->split(tensor);
    } else if (auto* head = dynamic_cast<LmHead*>(&module)) {
      divides(name, "tokens", head->weight.shape()[0]);
      head->weight.split(0, tensor);
    } else if (auto* linear = dynamic_cast<nn::Linear*>(&module)) {
      const bool columns = *how == Split::kColumns;
      divides(name, columns ? "outputs" : "inputs", columns ? linear->out() : linear->in());
      linear->split(columns ? nn::LinearSplit::kColumns : nn::LinearSplit::kRows, tensor);
    }
  });
  check<ConfigError>(any, key, ": models of type ", family.model_type,
                     " have no rules of how their layers split; expected 1");
}

}  // namespace temper::models
