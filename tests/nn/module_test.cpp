// The tree of a model's modules: names, visits by kind, and whose changes are counted.
#include "temper/nn/module.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <set>

#include "temper/base/error.h"
#include "temper/models/adapters/adapter.h"
#include "temper/models/adapters/adapter_copies.h"
#include "temper/nn/blocks.h"
#include "tests/generate/tiny.h"

using namespace temper;

namespace {

// Paths by kind.
struct Found {
  std::vector<std::string> linear, heads, embeddings, attention;
};

Found found(nn::Module& model, bool with_head = true) {
  Found out;
  const auto keep = [](std::vector<std::string>& names) {
    return [&names](const std::string& path, auto&) { names.push_back(path); };
  };
  nn::LayerVisitor visitor{.linear = keep(out.linear),
                           .embedding = keep(out.embeddings),
                           .attention = keep(out.attention)};
  if (with_head) visitor.lm_head = keep(out.heads);
  model.visit(visitor);
  return out;
}

nn::Parameter& first_parameter(nn::Module& module) {
  nn::Parameter* first = nullptr;
  module.each_parameter([&](const std::string&, nn::Parameter& p) { first = first ? first : &p; });
  return *first;
}

}  // namespace

TEST_CASE("a visitor gets the layers of each kind by their names, and passes over the others") {
  const auto untied = generate::tiny::model(31, {}, false);
  const Found all = found(*untied);
  CHECK(all.linear.size() == 2 * 7);
  CHECK(all.linear.front() == "model.layers.0.self_attn.q_proj");
  CHECK(all.heads == std::vector<std::string>{"lm_head"});
  CHECK(all.embeddings == std::vector<std::string>{"model.embed_tokens"});
  CHECK(all.attention ==
        std::vector<std::string>{"model.layers.0.self_attn", "model.layers.1.self_attn"});
  const Found without = found(*untied, false);  // a head is then a linear layer as any other
  CHECK(without.linear.size() == 2 * 7 + 1);
  CHECK(without.linear.back() == "lm_head");
  CHECK(found(*generate::tiny::model(31, {}, true)).heads.empty());
  untied->visit({});
}

TEST_CASE("a visited layer's path is that of its parameters") {
  const auto model = generate::tiny::model(31, {}, false);
  std::set<std::string> names, visited;
  model->each_parameter([&](const std::string& name, nn::Parameter&) { names.insert(name); });
  const auto add = [&](const std::string& path, auto&) { visited.insert(path + ".weight"); };
  model->visit({.linear = add, .embedding = add});
  CHECK(std::includes(names.begin(), names.end(), visited.begin(), visited.end()));
  for (const std::string& name : names)
    CHECK(visited.contains(name) == (name.find("norm") == name.npos));
}

TEST_CASE("a change counts for the model that it is of, and for no other") {
  const auto one = generate::tiny::model(31, {}, false),
             other = generate::tiny::model(31, {}, false);
  const uint64_t before = one->changes(), others = other->changes();
  CHECK(one->body().changes() == before);  // the same model
  first_parameter(*other).mark_updated();
  CHECK(one->changes() == before);
  CHECK(other->changes() == others + 1);
  for (const char* name : {"model.layers.1.mlp.up_proj", "lm_head"})
    one->visit({.linear = [&](const std::string& path, nn::Linear& layer) {
      if (path == name) layer.weight.set_value(layer.weight.value().detach().clone());
    }});
  CHECK(one->changes() == before + 2);
}

TEST_CASE("adapters and their frozen copies, which no model lists, count as the model's") {
  const auto model = generate::tiny::model(31, {}, true);
  models::add_lora(*model, {.rank = 2, .alpha = 4}, 1);
  const int index = models::freeze_adapter_copy(*model);
  nn::Linear* layer = nullptr;
  model->visit({.linear = [&](const std::string&, nn::Linear& found) { layer = &found; }});
  for (const int adapter : {0, index}) {
    const uint64_t before = model->changes();
    layer->adapter(adapter)->lora_B.weight.mark_updated();
    CHECK(model->changes() == before + 1);
  }
}
