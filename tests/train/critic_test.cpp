// Critics: a model of its own, and a second adapter on the policy's base.
#include "temper/train/roles/critic.h"

#include "temper/base/file.h"
#include "temper/models/adapters/lora_config.h"
#include "tests/train/tiny.h"

using namespace temper;

namespace {

train::ForwardPass pass_of(const tiny::Rows& rows) {
  train::ForwardPass pass;
  for (size_t r = 0; r < rows.size(); ++r)
    pass.add({{{-1, rows[r], rows[r], static_cast<int64_t>(r)}}}, r);
  return pass;
}

// Values that no initialization has, the same for each name.
void scatter(std::vector<train::NamedParameter> parameters) {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < parameters.size(); ++i) {
    nn::Parameter& p = *parameters[i].parameter;
    at::Tensor value = at::empty(p.shape(), at::kFloat);
    for (int64_t k = 0; k < value.numel(); ++k)
      value.mutable_data_ptr<float>()[k] =
          0.1F * std::sin(static_cast<float>(3 * k) + static_cast<float>(i));
    p.set_value(value);
  }
}

// Σ v², so that every value counts.
tiny::Weights gradients(train::Critic& critic, const train::ForwardPass& pass, bool recompute) {
  critic.values(pass, {.recompute = recompute}).square().sum().backward();
  tiny::Weights out;
  for (const train::NamedParameter& p : critic.parameters()) {
    const at::Tensor grad = p.parameter->value().grad();
    REQUIRE(grad.defined());
    out[p.name].assign(grad.const_data_ptr<float>(), grad.const_data_ptr<float>() + grad.numel());
    p.parameter->value().mutable_grad().reset();
  }
  return out;
}

}  // namespace

TEST_CASE("a critic on the base is the model that it saves, and the policy stays as it is") {
  const tiny::Folder folder;
  const tiny::Rows rows = tiny::rows(5);
  const train::ForwardPass pass = pass_of(rows);
  train::Policy policy = tiny::policy(models::LoraConfig{.rank = 4});
  write_file_atomic(folder / "config.json", R"({"model_type": "qwen3", "vocab_size": 61,
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 16, "tie_word_embeddings": true, "eos_token_id": 2})");
  const at::Tensor before = train::token_logp(*policy.model, pass, {}).logp;
  const std::unique_ptr<train::Critic> critic =
      train::critic_on_base(policy, {folder / "config.json", ""}, 3);
  const size_t adapted = 2 * 7 * 2;  // layers x linear layers x A and B
  CHECK(critic->parameters().size() == adapted + 1);
  scatter(critic->parameters());
  const at::Tensor values = critic->values(pass, {}).detach();
  CHECK(values.size(0) == pass.num_targets());
  CHECK(tiny::same_bits(train::token_logp(*policy.model, pass, {}).logp, before));
  CHECK(train::trainable_parameters(*policy.model).size() == adapted);

  critic->save(folder / "critic");
  const std::unique_ptr<train::Critic> merged =
      train::critic_model(models::load_scalar_model(folder / "critic"), {folder / "critic", ""});
  CHECK(at::allclose(merged->values(pass, {}), values, 1e-4, 1e-5));
  CHECK(tiny::same_bits(train::token_logp(*policy.model, pass, {}).logp, before));
}

TEST_CASE("recomputed gradients of a critic on the base are the plain ones") {
  const train::ForwardPass pass = pass_of(tiny::rows(5));
  train::Policy policy = tiny::policy(models::LoraConfig{.rank = 4});
  const std::unique_ptr<train::Critic> critic = train::critic_on_base(policy, {}, 3);
  scatter(critic->parameters());
  const tiny::Weights plain = gradients(*critic, pass, false);
  CHECK((gradients(*critic, pass, true) == plain));
  for (const train::NamedParameter& p : train::trainable_parameters(*policy.model))
    CHECK_FALSE(p.parameter->value().grad().defined());
}

TEST_CASE("the gradient of a value is its slope") {
  const train::ForwardPass pass = pass_of(tiny::rows(3));
  train::Policy policy = tiny::policy(models::LoraConfig{.rank = 4});
  const std::unique_ptr<train::Critic> critic = train::critic_on_base(policy, {}, 3);
  scatter(critic->parameters());
  const tiny::Weights gradient = gradients(*critic, pass, false);
  // Along a direction that touches every parameter, by central differences in double sums.
  const auto at_offset = [&](float offset) {
    const at::NoGradGuard no_grad;
    for (const train::NamedParameter& p : critic->parameters()) {
      at::Tensor value = p.parameter->value().detach();
      const std::vector<float>& g = gradient.at(p.name);
      for (int64_t k = 0; k < value.numel(); ++k)
        value.mutable_data_ptr<float>()[k] += offset * g[static_cast<size_t>(k)];
      p.parameter->mark_updated();
    }
    return critic->values(pass, {}).to(at::kDouble).square().sum().item<double>();
  };
  double squares = 0;
  for (const auto& [name, g] : gradient)
    for (const float x : g) squares += static_cast<double>(x) * x;
  const float h = static_cast<float>(1e-2 / std::sqrt(squares));
  const double above = at_offset(h), below = at_offset(-2 * h);
  CHECK((above - below) / (2.0 * h) == doctest::Approx(squares).epsilon(1e-2));
}

TEST_CASE("a critic of its own trains all but what is frozen") {
  const tiny::Folder folder;
  train::Policy policy = tiny::policy(models::LoraConfig{.rank = 4});
  write_file_atomic(folder / "config.json", R"({"model_type": "qwen3", "vocab_size": 61,
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 16, "tie_word_embeddings": true, "eos_token_id": 2})");
  const std::unique_ptr<train::Critic> first =
      train::critic_on_base(policy, {folder / "config.json", ""}, 3);
  first->save(folder / "critic");
  const auto critic = [&](const std::vector<std::string>& freeze) {
    return train::critic_model(models::load_scalar_model(folder / "critic"),
                               {folder / "critic", ""}, freeze);
  };
  const size_t all = critic({})->parameters().size();
  CHECK(critic({"no.such.name"})->parameters().size() == all);
  CHECK(critic({"model.embed_tokens.*", "*norm*"})->parameters().size() < all);
  const train::ForwardPass pass = pass_of(tiny::rows(4));
  const at::Tensor fresh = first->values(pass, {}).detach();
  CHECK(at::allclose(critic({})->values(pass, {}), fresh, 1e-5, 1e-6));
}
