// Sampling is exact: what generate records is what score computes, and a row's completion is its
// own whatever runs beside it. Sizes are odd on purpose: no width here is a multiple of a vector.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <doctest/doctest.h>
#include <omp.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/base/json.h"
#include "temper/base/random.h"
#include "temper/generate/engine.h"
#include "temper/generate/score.h"
#include "temper/models/adapters/adapter.h"
#include "temper/models/adapters/adapter_copies.h"
#include "temper/models/adapters/adapter_files.h"
#include "temper/models/files/load.h"
#include "temper/train/forward_pass.h"
#include "tests/models/golden.h"

using namespace temper;
using generate::Completion;
using generate::EngineOptions;

namespace {

constexpr int32_t kFamilyVocabulary = 331;
// Gemma 4 with experts, which its family has where a config says so.
constexpr const char* kGemma4Experts = "gemma4_text with experts";

// What a family has beyond the others, in numbers that show.
Json particulars(std::string_view model_type) {
  if (model_type == "qwen3") return {{"tie_word_embeddings", false}};
  if (model_type == "phi3" || model_type == "glm4" || model_type == "glm4_moe")
    return {{"partial_rotary_factor", 0.56}};
  if (model_type == "smollm3") return {{"use_sliding_window", true}, {"no_rope_layer_interval", 2}};
  if (model_type == "granite" || model_type == "granitemoe")
    return {{"embedding_multiplier", 3.0},
            {"residual_multiplier", 0.7},
            {"attention_multiplier", 0.4},
            {"logits_scaling", 0.8}};
  if (model_type == "cohere2") return {{"logit_scale", 0.7}};
  if (model_type == "gpt_oss") return {{"swiglu_limit", 0.5}};
  if (model_type == "deepseek_v3")
    return {{"num_key_value_heads", 6}, {"n_group", 1},       {"topk_group", 1},
            {"q_lora_rank", 30},        {"kv_lora_rank", 22}, {"qk_nope_head_dim", 11},
            {"qk_rope_head_dim", 6},    {"head_dim", 6},      {"first_k_dense_replace", 1},
            {"v_head_dim", 13}};
  if (model_type == "hunyuan_v1_dense")
    return {{"rope_scaling", {{"type", "dynamic"}, {"alpha", 50.0}}}};
  if (model_type == "ministral3")
    return {{"rope_parameters",
             {{"rope_type", "yarn"},
              {"factor", 4.0},
              {"original_max_position_embeddings", 16},
              {"llama_4_scaling_beta", 0.3}}}};
  if (model_type == "lfm2")
    return {{"layer_types", {"conv", "full_attention", "conv"}}, {"block_multiple_of", 4}};
  if (model_type == "qwen3_5_text" || model_type == "qwen3_next" ||
      model_type == "qwen3_5_moe_text")
    return {{"full_attention_interval", 2},         {"linear_num_key_heads", 2},
            {"linear_num_value_heads", 6},          {"linear_key_head_dim", 13},
            {"linear_value_head_dim", 21},          {"num_experts", 7},
            {"shared_expert_intermediate_size", 20}};
  if (model_type == kGemma4Experts)
    return {{"model_type", "gemma4_text"},
            {"enable_moe_block", true},
            {"num_experts", 7},
            {"top_k_experts", 3},
            {"global_head_dim", 24},
            {"attention_k_eq_v", true},
            {"num_global_key_value_heads", 1},
            {"hidden_size_per_layer_input", 0},
            {"layer_types", {"sliding_attention", "full_attention", "full_attention"}}};
  if (model_type == "gemma4_text")
    return {{"num_hidden_layers", 6},
            {"layer_types",
             {"sliding_attention", "full_attention", "sliding_attention", "full_attention",
              "sliding_attention", "full_attention"}},
            {"num_kv_shared_layers", 3},
            {"global_head_dim", 24},
            {"use_double_wide_mlp", true},
            {"hidden_size_per_layer_input", 6},
            {"vocab_size_per_layer_input", kFamilyVocabulary}};
  return Json::object();
}

Json family(const std::string& model_type) {
  Json json = {{"model_type", model_type},
               {"vocab_size", kFamilyVocabulary},
               {"hidden_size", 72},
               {"intermediate_size", 100},
               {"num_hidden_layers", 3},
               {"num_attention_heads", 6},
               {"num_key_value_heads", 2},
               {"head_dim", 18},
               {"max_position_embeddings", 512},
               {"initializer_range", 0.15},
               {"tie_word_embeddings", true},
               {"sliding_window", 11},
               {"attn_logit_softcapping", 4.0},
               {"final_logit_softcapping", 5.0},
               {"query_pre_attn_scalar", 20},
               {"num_local_experts", 7},
               {"num_experts_per_tok", 3},
               {"moe_intermediate_size", 44},
               {"decoder_sparse_step", 2},
               {"sliding_window_pattern", 3}};
  json.update(particulars(model_type));
  return json;
}

std::unique_ptr<models::CausalLM> make(const std::string& model_type) {
  auto model = models::init_model(models::HfConfig::parse(family(model_type), "test"), 5);
  model->eos_token_ids = {7, 100};
  return model;
}

// Changes what the adapter leaves as it is at first: B, DoRA's magnitudes, whole modules.
void perturb(models::CausalLM& model, uint64_t seed) {
  model.each_parameter([&](const std::string& name, nn::Parameter& p) {
    if (name.find("lora_B") != std::string::npos)
      p.set_value(models::initial_value(p, name, seed) + 0.05);
    else if (p.trainable() && name.find("lora_A") == std::string::npos)
      p.set_value(p.value().detach() * (1 + 0.01 * static_cast<double>(seed)));
  });
}

// An adapter that changes what the model says.
void add_adapter(models::CausalLM& model, bool dora = false,
                 const std::vector<std::string>& whole = {}) {
  const std::string gate = model.config().experts > 0 ? "gate_up_proj" : "gate_proj";
  const bool latent = std::string(model.body().family()->model_type) == "deepseek_v3";
  const std::vector<std::string> of_attention =
      latent ? std::vector<std::string>{"q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj"}
             : std::vector<std::string>{"q_proj", "v_proj"};
  std::vector<std::string> targets{gate, "down_proj"};
  targets.insert(targets.end(), of_attention.begin(), of_attention.end());
  models::add_lora(
      model,
      {.rank = 5, .alpha = 11, .target_modules = targets, .dora = dora, .modules_to_save = whole},
      3);
  perturb(model, 9);
}

// One of what latents are made of and what is made of them.
void add_latent_adapter(models::CausalLM& model, bool dora = false) {
  models::add_lora(model,
                   {.rank = 5,
                    .alpha = 11,
                    .target_modules = {"q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj"},
                    .dora = dora,
                    .modules_to_save = {}},
                   3);
  perturb(model, 9);
}

// Lengths from 1 to beyond a page and a window.
std::vector<std::vector<int32_t>> prompts() {
  const RandomStream stream(1, RandomPurpose::kShuffle);
  std::vector<std::vector<int32_t>> rows;
  uint64_t draw = 0;
  for (const size_t length : {1, 9, 40, 2, 70, 17, 33}) {
    rows.emplace_back();
    for (size_t i = 0; i < length; ++i)
      rows.back().push_back(static_cast<int32_t>(stream.below(draw++, kFamilyVocabulary)));
  }
  return rows;
}

struct GenerateOptions : generate::GenerationOptions {
  int64_t num_samples = 3;
  EngineOptions engine;
};

GenerateOptions sampled() {
  GenerateOptions options;
  options.sampling = {.temperature = 0.8, .top_k = 0, .top_p = 0.97, .min_p = 0, .seed = 4};
  options.max_new_tokens = 21;
  return options;
}

std::vector<Completion> run(models::CausalLM& model, const GenerateOptions& options,
                            const std::vector<std::vector<int32_t>>& rows = prompts()) {
  std::vector<Completion> all;
  generate::generate(
      model, rows, options.num_samples, options, [&](Completion c) { all.push_back(std::move(c)); },
      nullptr, {}, options.engine);
  return all;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

bool same(const std::vector<Completion>& a, const std::vector<Completion>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (a[i].tokens != b[i].tokens || !same_bits(a[i].logprobs, b[i].logprobs) ||
        a[i].stopped != b[i].stopped)
      return false;
  return true;
}

// generate's numbers against score's of the whole row: all rows in one pass, and each alone.
void check_scores(models::CausalLM& model, const std::vector<Completion>& completions,
                  double temperature) {
  const auto rows = prompts();
  std::vector<generate::ScoreRequest> requests;
  for (const Completion& c : completions) {
    std::vector<int32_t> tokens = rows[static_cast<size_t>(c.index)];
    const size_t first = tokens.size();
    tokens.insert(tokens.end(), c.tokens.begin(), c.tokens.end());
    requests.push_back({tokens, first});
  }
  const std::vector<generate::ScoreResult> together = generate::score(model, requests, temperature);
  for (size_t i = 0; i < requests.size(); ++i) {
    CAPTURE(i);
    REQUIRE(!completions[i].tokens.empty());
    CHECK(same_bits(completions[i].logprobs, together[i].logprobs));
    CHECK(same_bits(completions[i].logprobs,
                    generate::score(model, {requests[i]}, temperature)[0].logprobs));
  }
}

// Most of these tests run on one thread: many short steps on two are slow on a busy machine.
class Threads {
 public:
  explicit Threads(int count) : before_(omp_get_max_threads()) { omp_set_num_threads(count); }
  ~Threads() { omp_set_num_threads(before_); }

 private:
  int before_;
};

// The whole contract for one model, but for threads: many short steps on two threads are slow on a
// busy machine.
void check_exact(models::CausalLM& model) {
  const Threads one(1);
  const std::vector<Completion> expected = run(model, sampled());
  REQUIRE(expected.size() == prompts().size() * 3);
  check_scores(model, expected, 0.8);

  size_t different = 0;
  for (size_t i = 0; i < expected.size(); i += 3)
    different += expected[i].tokens != expected[i + 1].tokens;
  CHECK(different >= prompts().size() - 1);  // samples of one prompt are not copies

  for (const int64_t max_batch : {1, 3, 64}) {
    CAPTURE(max_batch);
    GenerateOptions options = sampled();
    options.engine.max_batch = max_batch;
    CHECK(same(run(model, options), expected));
  }
  GenerateOptions small = sampled();
  small.engine.prefill_tokens = 16;
  CHECK(same(run(model, small), expected));

  GenerateOptions greedy = sampled();
  greedy.sampling = {.temperature = 0};
  greedy.num_samples = 1;
  greedy.ignore_eos = true;
  const std::vector<Completion> likeliest = run(model, greedy);
  check_scores(model, likeliest, 1);
  for (size_t row = 0; row < likeliest.size(); ++row)
    CHECK(same(run(model, greedy, {prompts()[row]}), {likeliest[row]}));
}

}  // namespace

TEST_CASE("sampling, scoring and batching agree to the bit for every family") {
  const Threads one(1);
  for (const std::string& name : built_in_families()) {
    CAPTURE(name);
    check_exact(*make(name));
  }
  check_exact(*make(kGemma4Experts));
}

TEST_CASE("log-probabilities over what truncation left are the trainer's, to the bit") {
  const Threads one(1);
  for (const char* type : {"qwen2", "gemma2"}) {
    CAPTURE(type);
    const auto model = make(type);
    GenerateOptions options = sampled();
    options.sampling = {.temperature = 0.8, .top_k = 30, .top_p = 0.9, .min_p = 0.001, .seed = 4};
    const std::vector<Completion> plain = run(*model, options);
    options.record_kept = true;
    const std::vector<Completion> recorded = run(*model, options);
    REQUIRE(recorded.size() == plain.size());
    const auto rows = prompts();
    for (size_t i = 0; i < recorded.size(); ++i) {
      const Completion& c = recorded[i];
      CHECK(c.tokens == plain[i].tokens);
      CHECK(plain[i].kept.empty());
      REQUIRE(c.kept.size() == c.tokens.size());
      train::PackUnit unit;
      unit.segments = {{-1, rows[static_cast<size_t>(c.index)], {}, 0}, {0, c.tokens, c.tokens, 1}};
      train::ForwardPass pass;
      pass.add(unit, 0);
      auto kept = std::make_shared<ops::KeptTokens>();
      kept->offset = {0};
      for (const std::vector<int32_t>& ids : c.kept) {
        CHECK(ids.size() <= 30);
        kept->id.insert(kept->id.end(), ids.begin(), ids.end());
        kept->offset.push_back(std::ssize(kept->id));
      }
      pass.kept = kept;
      const at::Tensor logp = train::token_logp(*model, pass, {.temperature = 0.8}).logp;
      const float* values = logp.const_data_ptr<float>();
      CHECK(same_bits(c.logprobs, {values, values + logp.numel()}));
      CHECK_FALSE(same_bits(c.logprobs, plain[i].logprobs));
    }
  }
}

TEST_CASE("sampling through an adapter is as exact") {
  const Threads one(1);
  for (const char* name :
       {"qwen3", "gemma2", "llama", "qwen3_moe", "deepseek_v3", "gpt_oss", kGemma4Experts}) {
    CAPTURE(name);
    const auto model = make(name);
    const std::vector<Completion> plain = run(*model, sampled());
    add_adapter(*model);
    CHECK(!same(run(*model, sampled()), plain));
    check_exact(*model);
  }
}

TEST_CASE("sampling through a weight-decomposed adapter with whole modules is as exact") {
  const Threads one(1);
  for (const char* name : {"qwen3", "qwen2", "gemma2"}) {
    CAPTURE(name);
    const auto model = make(name), lora = make(name);
    add_adapter(*lora);
    add_adapter(*model, true, {"embed_tokens", "lm_head"});
    CHECK(!same(run(*model, sampled()), run(*lora, sampled())));
    check_exact(*model);
  }
}

TEST_CASE("sampling through a weight-decomposed adapter of latent attention is as exact") {
  const Threads one(1);
  const auto model = make("deepseek_v3"), lora = make("deepseek_v3");
  add_latent_adapter(*lora);
  add_latent_adapter(*model, true);
  CHECK(!same(run(*model, sampled()), run(*lora, sampled())));
  check_exact(*model);
}

// Adapter 1 is LoRA, 2 DoRA with a head of its own, 0 the base model: pages, heads and passes of
// one must never serve another.
TEST_CASE("rows of several adapters in one run get what each adapter gives alone, to the bit") {
  const Threads one(1);
  const auto model = make("qwen3");
  const std::vector<std::vector<int32_t>> distinct = prompts();
  std::vector<std::vector<Completion>> alone;
  const std::string directory =
      (std::filesystem::temp_directory_path() / "temper_exactness_adapters").string();
  for (const bool second : {false, true}) {
    const auto maker = make("qwen3");
    const std::vector<std::string> whole =
        second ? std::vector<std::string>{"lm_head"} : std::vector<std::string>{};
    const models::LoraConfig config{.rank = second ? 3 : 5,
                                    .alpha = 11,
                                    .target_modules = {second ? "all-linear" : "q_proj"},
                                    .dora = second,
                                    .modules_to_save = whole};
    models::add_lora(*maker, config, 3);
    perturb(*maker, second ? 9 : 5);
    models::save_adapter(*maker, config, "base", directory);
    CHECK(models::load_frozen_adapter(*model, directory) == (second ? 2 : 1));
    std::filesystem::remove_all(directory);
    alone.push_back(run(*maker, sampled(), distinct));
  }
  alone.insert(alone.begin(), run(*make("qwen3"), sampled(), distinct));

  // Every prompt under every adapter, side by side: they have the same tokens.
  std::vector<std::vector<int32_t>> rows;
  std::vector<int> adapters;
  for (const std::vector<int32_t>& row : distinct)
    for (const int adapter : {2, 0, 1}) {
      rows.push_back(row);
      adapters.push_back(adapter);
    }
  // A row's index is a key of its random numbers: greedy, so that only the model decides.
  GenerateOptions greedy = sampled();
  greedy.sampling.temperature = 0;
  std::vector<Completion> found;
  generate::generate(
      *model, rows, 2, greedy, [&](Completion c) { found.push_back(std::move(c)); }, nullptr, {},
      greedy.engine, adapters);
  std::vector<generate::ScoreRequest> requests;
  for (const Completion& c : found) {
    std::vector<int32_t> tokens = rows[static_cast<size_t>(c.index)];
    const size_t first = tokens.size();
    tokens.insert(tokens.end(), c.tokens.begin(), c.tokens.end());
    requests.push_back({tokens, first, adapters[static_cast<size_t>(c.index)]});
  }
  const auto together = generate::score(*model, requests, 1, 3);
  for (size_t i = 0; i < found.size(); ++i) {
    CAPTURE(i);
    CHECK(same_bits(found[i].logprobs, together[i].logprobs));
    CHECK(same_bits(generate::score(*model, {requests[i]}, 1)[0].logprobs, found[i].logprobs));
    CHECK(generate::score(*model, {requests[i]}, 1, 3)[0].next_top == together[i].next_top);
  }
  for (const int adapter : {0, 1, 2}) {
    CAPTURE(adapter);
    const std::vector<Completion>& expected = alone[static_cast<size_t>(adapter)];
    std::vector<Completion> sampled_rows;
    generate::generate(
        *model, distinct, sampled().num_samples, sampled(),
        [&](Completion c) { sampled_rows.push_back(std::move(c)); }, nullptr, {}, {},
        std::vector<int>(distinct.size(), adapter));
    CHECK(same(sampled_rows, expected));
  }
  CHECK(!same(alone[0], alone[1]));
  CHECK(!same(alone[1], alone[2]));
}

TEST_CASE("sequences of several adapters share passes, and each gets what it gets alone") {
  const Threads one(1);
  const char* const unadapted_experts = "deepseek_v3 with adapters of attention alone";
  for (const char* name : {"qwen3", "gemma2", "llama", "gemma4_text", "qwen3_5_text", "deepseek_v3",
                           "qwen3_moe", unadapted_experts}) {
    CAPTURE(std::string(name));
    const auto model = make(name == unadapted_experts ? "deepseek_v3" : name);
    if (name == unadapted_experts) {
      add_latent_adapter(*model);
    } else {
      add_adapter(*model);
    }
    for (const uint64_t seed : {4, 6}) {  // adapters 1 and 2 are what it was before
      const auto copy = [](const std::string&, nn::Linear& layer) { layer.add_frozen_copy(); };
      model->visit({.linear = copy, .tied_head = copy, .router = copy});
      model->each_parameter([&](const std::string& parameter, nn::Parameter& p) {
        if (parameter.find("lora_B") != std::string::npos)
          p.set_value(p.value().detach() * (0.3 * static_cast<double>(seed)));
      });
    }
    std::vector<std::vector<int32_t>> rows;
    std::vector<int> adapters;
    for (const std::vector<int32_t>& row : prompts())
      for (const int adapter : {1, 2, 0}) {
        rows.push_back(row);
        adapters.push_back(adapter);
      }
    GenerateOptions greedy = sampled();  // a row's index is a key of its random numbers
    greedy.sampling.temperature = 0;
    const auto run_rows = [&](const std::vector<std::vector<int32_t>>& some,
                              const std::vector<int>& under, std::vector<Completion>& found) {
      return generate::generate(
                 *model, some, 2, greedy, [&](Completion c) { found.push_back(std::move(c)); },
                 nullptr, {}, greedy.engine, under)
          .passes;
    };
    std::vector<Completion> together;
    const int64_t shared = run_rows(rows, adapters, together);
    int64_t apart = 0;
    std::map<int, std::vector<Completion>> alone;
    for (const int adapter : {0, 1, 2})
      apart += run_rows(prompts(), std::vector<int>(prompts().size(), adapter), alone[adapter]);
    for (size_t i = 0; i < together.size(); ++i) {
      CAPTURE(i);
      const size_t row = i / 2;
      const Completion& expected = alone[adapters[row]][row / 3 * 2 + i % 2];
      CHECK(together[i].tokens == expected.tokens);
      CHECK(same_bits(together[i].logprobs, expected.logprobs));
    }
    CHECK(!same(alone[0], alone[1]));
    CHECK(!same(alone[1], alone[2]));
    // Not where experts are adapted: their rows are in another order than the tokens.
    const bool experts = std::string(name) == "deepseek_v3" || std::string(name) == "qwen3_moe";
    CAPTURE(shared);
    CAPTURE(apart);
    CHECK((shared < apart) == !experts);
  }
}

// After a change of what the model computes with, which changes the samples, too; with an adapter
// as well.
template <class Change>
static void check_exact_after(models::CausalLM& model, Change change) {
  const std::vector<Completion> before = run(model, sampled());
  change();
  CHECK(!same(run(model, sampled()), before));
  check_exact(model);
  add_adapter(model);
  check_exact(model);
}

TEST_CASE("sampling with weights rounded to bfloat16 is as exact, and is not float32's") {
  const Threads one(1);
  for (const char* name : {"qwen3", "gemma2", "deepseek_v3"}) {
    CAPTURE(name);
    const auto model = make(name);
    check_exact_after(
        *model, [&] { models::set_storage(*model, {ops::WeightFormat::kRoundedBFloat16, {}}); });
  }
}

TEST_CASE("sampling with int8 and nf4 weights is as exact") {
  const Threads one(1);
  for (const auto format : {ops::WeightFormat::kInt8, ops::WeightFormat::kNf4})
    for (const char* name :
         {"qwen2", "gemma3_text", "deepseek_v3", "qwen3_5_text", kGemma4Experts}) {
      CAPTURE(name);
      const auto model = make(name);
      check_exact_after(
          *model, [&] { models::set_storage(*model, {ops::WeightFormat::kFloat32, format}); });
    }
}

TEST_CASE("sampling with keys and values cached in 16 bits is as exact, and is not float32's") {
  const Threads one(1);
  for (const auto dtype : {ops::CacheDtype::kFloat16, ops::CacheDtype::kBFloat16})
    for (const char* name : {"qwen3", "gemma2", "gpt_oss", "qwen3_5_text", "deepseek_v3"}) {
      CAPTURE(name);
      const auto model = make(name);
      const int64_t page = generate::PageCache(*model, 0).page_bytes();
      check_exact_after(*model, [&] { models::set_cache_dtype(*model, dtype); });
      CHECK(2 * generate::PageCache(*model, 0).page_bytes() == page);
    }
}

namespace {

void check_shared_prefixes(const char* family) {
  const auto model = make(family);
  std::vector<std::vector<int32_t>> rows = prompts();
  const std::vector<int32_t> beginning = rows[4];
  int64_t longest = 0;
  for (std::vector<int32_t>& row : rows) {
    row.insert(row.begin(), beginning.begin(), beginning.end());
    longest = std::max(longest, static_cast<int64_t>(row.size()));
  }
  const GenerateOptions options = sampled();
  const std::vector<Completion> expected = run(*model, options, rows);
  // A page's width is the machine's.
  const int64_t least = generate::pages_for(longest, ops::page_tokens()) +
                        generate::pages_for(longest + options.max_new_tokens, ops::page_tokens());
  for (const int64_t pages :
       {least, 3 * least, int64_t{4000}}) {  // few: prefixes are evicted, sequences wait
    CAPTURE(pages);
    EngineOptions small;
    const generate::PageCache empty(*model, 0);
    small.cache_bytes = pages * empty.page_bytes() + 2 * empty.state_bytes();
    small.prefill_tokens = 23;
    generate::Engine engine(*model, small);
    for (int call = 0; call < 2; ++call) {
      for (size_t i = 0; i < rows.size(); ++i)
        engine.submit({static_cast<int64_t>(i), rows[i], options.num_samples, options});
      std::vector<Completion> found(expected.size());
      engine.run([&](Completion c) {
        engine.check_invariants();
        found[static_cast<size_t>(c.index * options.num_samples + c.sample)] = std::move(c);
      });
      CHECK(same(found, expected));
    }
    // Two states are those of a prompt and of its sample: none is left for a snapshot.
    if (empty.state_bytes() == 0 || pages == 4000) CHECK(engine.statistics().reused_tokens > 0);
    engine.check_invariants();
    engine.release_memory();
  }
}

}  // namespace

TEST_CASE("prompts that begin alike share pages, also of earlier calls, and change no bit") {
  const Threads one(1);
  for (const char* family : {"gemma3_text", "lfm2", "qwen3_5_text", "deepseek_v3"}) {
    CAPTURE(family);
    check_shared_prefixes(family);
  }
}

TEST_CASE("a model whose layers carry states drafts nothing, and says so where it is asked to") {
  const Threads one(1);
  const auto model = make("lfm2");
  GenerateOptions options = sampled();
  options.engine.speculative = 0;
  const std::vector<Completion> expected = run(*model, options);
  options.engine.speculative = generate::kAutomatic;
  CHECK(same(run(*model, options), expected));
  options.engine.speculative = 4;
  CHECK_THROWS_WITH_AS(run(*model, options), doctest::Contains("expected auto or off"),
                       ConfigError);
}

TEST_CASE("a next turn starts where the last one ended") {
  const Threads one(1);
  const auto model = make("gemma2");
  generate::Engine engine(*model, {});
  GenerateOptions options = sampled();
  options.ignore_eos = true;
  options.max_new_tokens = 3 * ops::page_tokens();
  std::vector<int32_t> conversation = prompts()[4];
  for (int64_t turn = 0; turn < 3; ++turn) {
    CAPTURE(turn);
    const int64_t before = engine.statistics().reused_tokens;
    engine.submit({turn, conversation, 1, options});
    std::vector<Completion> found;
    engine.run([&](Completion c) { found.push_back(std::move(c)); });
    REQUIRE(found.size() == 1);
    // All that has keys but for the last, partial page; a last token was sampled and has none.
    const int64_t page = ops::page_tokens();
    const int64_t known = static_cast<int64_t>(conversation.size()) - 2;
    CHECK(engine.statistics().reused_tokens - before == (turn == 0 ? 0 : known / page * page));
    std::vector<Completion> alone;
    generate::Engine fresh(*model, {});
    fresh.submit({turn, conversation, 1, options});
    fresh.run([&](Completion c) { alone.push_back(std::move(c)); });
    CHECK(same(found, alone));
    conversation.insert(conversation.end(), found[0].tokens.begin(), found[0].tokens.end());
    conversation.push_back(static_cast<int32_t>(turn));
  }
}

TEST_CASE("requests with options of their own share a batch and get what they get alone") {
  const Threads one(1);
  const auto model = make("qwen3");
  std::vector<generate::GenerationOptions> all(4, sampled());
  all[1].sampling = {.temperature = 0};
  all[1].ignore_eos = true;
  all[2].sampling = {.temperature = 1.7, .top_k = 9, .repetition_penalty = 1.3, .seed = 77};
  all[2].max_new_tokens = 5;
  all[3].sampling.seed = 12;
  generate::Engine engine(*model, {});
  const auto rows = prompts();
  for (size_t i = 0; i < rows.size(); ++i)
    engine.submit({static_cast<int64_t>(i), rows[i], 2, all[i % 4]});
  std::map<std::pair<int64_t, int64_t>, Completion> together;
  engine.run([&](Completion c) { together[{c.index, c.sample}] = c; });
  for (size_t i = 0; i < rows.size(); ++i) {
    CAPTURE(i);
    generate::Engine alone(*model, {});
    alone.submit({static_cast<int64_t>(i), rows[i], 2, all[i % 4]});
    alone.run([&](Completion c) { CHECK(same({c}, {together[{c.index, c.sample}]})); });
  }
}

TEST_CASE("an update of another model leaves the known prefixes as good as they were") {
  const Threads one(1);
  const auto model = make("qwen3"), other = make("qwen3");
  generate::Engine engine(*model, {});
  const auto reused_by_one = [&] {
    const int64_t before = engine.statistics().reused_tokens;
    engine.submit({0, prompts()[4], 1, sampled()});
    engine.run([](const Completion&) {});
    return engine.statistics().reused_tokens - before;
  };
  CHECK(reused_by_one() == 0);
  const int64_t reused = reused_by_one();
  CHECK(reused > 0);
  other->each_parameter([](const std::string&, nn::Parameter& p) { p.mark_updated(); });
  CHECK(reused_by_one() == reused);
  model->each_parameter([](const std::string&, nn::Parameter& p) { p.mark_updated(); });
  CHECK(reused_by_one() == 0);
}

TEST_CASE("what was computed with other weights is not reused") {
  const Threads one(1);
  const auto model = make("qwen3");
  generate::Engine engine(*model, {});
  const std::vector<int32_t> prompt = prompts()[4];
  const auto sample = [&] {
    std::vector<Completion> found;
    engine.submit({0, prompt, 1, sampled()});
    engine.run([&](Completion c) { found.push_back(std::move(c)); });
    return found;
  };
  const std::vector<Completion> before = sample();
  CHECK(same(sample(), before));
  const int64_t reused = engine.statistics().reused_tokens;
  CHECK(reused > 0);
  model->each_parameter(
      [](const std::string&, nn::Parameter& p) { p.set_value(p.value() * 1.25); });
  const std::vector<Completion> after = sample();
  CHECK(engine.statistics().reused_tokens == reused);
  CHECK(!same(after, before));

  // Weights that change between two steps: what runs goes on, and leaves no page to others.
  engine.submit({0, prompt, 1, sampled()});
  std::vector<Completion> found;
  const generate::Callbacks keep{[&](Completion c) { found.push_back(std::move(c)); }, {}};
  engine.step(keep);
  model->each_parameter([](const std::string&, nn::Parameter& p) { p.set_value(p.value() * 0.8); });
  while (engine.step(keep)) {
  }
  engine.check_invariants();
  const int64_t reused_before = engine.statistics().reused_tokens;
  const std::vector<Completion> last = sample();
  CHECK(engine.statistics().reused_tokens == reused_before);
  generate::Engine fresh(*model, {});
  fresh.submit({0, prompt, 1, sampled()});
  fresh.run([&](Completion c) { CHECK(same({c}, last)); });
}

TEST_CASE("of latent attention the cache holds each token's latent, once for all heads") {
  Json config = family("deepseek_v3");
  config.update({{"kv_lora_rank", 512}, {"qk_rope_head_dim", 64}, {"head_dim", 64}});
  const auto model = models::init_model(models::HfConfig::parse(config, "test"), 5);
  const generate::PageCache cache(*model, 0);
  CHECK(cache.page_bytes() == 3 * cache.page_tokens() * 576 * 4);
}

TEST_CASE("a request that can never fit the cache is refused at once") {
  const auto model = make("qwen3");
  generate::Engine engine(*model, {.cache_bytes = 2 * generate::PageCache(*model, 0).page_bytes()});
  CHECK_THROWS_AS(engine.submit({0, prompts()[4], 1, sampled()}), ConfigError);
  CHECK_THROWS_AS(engine.submit({0, {}, 1, sampled()}), DataError);
}

TEST_CASE("one thread and two give the same bits") {
  GenerateOptions options = sampled();
  options.max_new_tokens = 8;
  options.num_samples = 2;
  for (const char* name : {"qwen3", "gemma2", "llama", "deepseek_v3"}) {
    CAPTURE(name);
    const auto model = make(name);
    std::vector<Completion> one;
    {
      const Threads count(1);
      one = run(*model, options);
    }
    const Threads count(2);
    CHECK(same(run(*model, options), one));
    check_scores(*model, one, 0.8);
  }
}

TEST_CASE("an end token ends a completion and is its last token") {
  const Threads one(1);
  const auto model = make("qwen3");
  size_t stopped = 0;
  GenerateOptions options = sampled();
  options.num_samples = 20;
  options.max_new_tokens = 40;
  for (const Completion& c : run(*model, options)) {
    const auto is_end = [](int32_t t) { return t == 7 || t == 100; };
    CHECK(std::find_if(c.tokens.begin(), c.tokens.end() - 1, is_end) == c.tokens.end() - 1);
    CHECK(is_end(c.tokens.back()) == c.stopped);
    CHECK((c.stopped || c.tokens.size() == 40));
    stopped += c.stopped;
  }
  CHECK(stopped > 0);
}

// A stale packed weight would agree with itself: compare with a model that never held the old
// weights.
TEST_CASE("after an update the model samples as a fresh one with its weights") {
  const Threads one(1);
  const auto model = make("llama"), fresh = make("llama");
  const std::vector<Completion> before = run(*model, sampled());
  const at::NoGradGuard no_grad;
  model->each_parameter([](const std::string&, nn::Parameter& p) {
    p.own();
    at::Tensor value = p.value();
    value.mul_(1.25);
    p.mark_updated();
  });
  fresh->each_parameter(
      [](const std::string&, nn::Parameter& p) { p.set_value(p.value() * 1.25); });
  const std::vector<Completion> after = run(*model, sampled());
  CHECK(!same(after, before));
  CHECK(same(after, run(*fresh, sampled())));
}
