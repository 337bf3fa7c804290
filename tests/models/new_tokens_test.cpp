// Tokens beyond those of a model's files, and rows of embeddings that train alone.
#include "temper/models/files/new_tokens.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <doctest/doctest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/models/adapters/adapter.h"
#include "temper/models/adapters/adapter_files.h"
#include "temper/models/family.h"
#include "temper/models/files/load.h"
#include "temper/models/files/save.h"
#include "temper/text/tokenizer/tokenizer.h"
#include "temper/train/roles/parameters.h"
#include "tests/models/golden.h"

using namespace temper;
namespace fs = std::filesystem;

namespace {

const std::vector<std::string> kNew = {"<act>", "</act>"};

// A golden model with a tokenizer of so many tokens, t0, t1, ..
struct WithTokenizer {
  WithTokenizer(const std::string& model, int64_t tokens)
      : folder(str("new_tokens_", model, "_", tokens)) {
    for (const auto& entry : fs::directory_iterator(golden_model(model)))
      if (entry.is_regular_file())
        fs::copy_file(entry.path(), folder.path + "/" + entry.path().filename().string());
    Json file = {
        {"added_tokens", Json::array()},
        {"normalizer", nullptr},
        {"pre_tokenizer", nullptr},
        {"post_processor", nullptr},
        {"decoder", nullptr},
        {"model", {{"type", "BPE"}, {"vocab", Json::object()}, {"merges", Json::array()}}}};
    for (int64_t i = 0; i < tokens; ++i) file["model"]["vocab"]["t" + std::to_string(i)] = i;
    write_file_atomic(folder.path + "/tokenizer.json", file.dump());
  }
  ~WithTokenizer() { models::use_new_tokens(folder.path, {}, "test"); }
  const std::string& path() const { return folder.path; }
  Directory folder;
};

at::Tensor embeddings(models::CausalLM& model) {
  return model.body().embedding().weight.float_value().detach();
}

}  // namespace

TEST_CASE("new tokens have the mean of the others' rows, spare ones or added ones") {
  for (const char* name : {"llama", "llama_linear", "gemma3"}) {
    CAPTURE(name);
    const auto plain = models::load_model(golden_model(name));
    const int64_t rows = plain->vocab_size;
    const Sequences sequences{{3, 1, 4, 1, 5, 9, 2, 6}};
    for (const int64_t tokens : {rows, rows - 1, rows - 7}) {
      CAPTURE(tokens);
      const WithTokenizer of(name, tokens);
      models::use_new_tokens(of.path(), kNew, "test");
      const auto grown = models::load_model(of.path());
      REQUIRE(grown->vocab_size == std::max(rows, tokens + 2));
      CHECK(models::vocabulary_of(of.path()) == grown->vocab_size);
      const auto tokenizer = Tokenizer::load_directory(of.path());
      for (int64_t i = 0; i < 2; ++i)
        CHECK(tokenizer->id_of(kNew[static_cast<size_t>(i)]) == tokens + i);
      const auto check = [&](const at::Tensor& before, const at::Tensor& after) {
        CHECK(at::equal(after.narrow(0, 0, tokens), before.narrow(0, 0, tokens)));
        const at::Tensor mean = before.narrow(0, 0, tokens).to(at::kDouble).mean(0).to(at::kFloat);
        for (int64_t i = 0; i < 2; ++i) CHECK(difference(after.select(0, tokens + i), mean) < 1e-7);
        const int64_t left = after.size(0) - tokens - 2;
        CHECK(at::equal(after.narrow(0, tokens + 2, left), before.narrow(0, rows - left, left)));
      };
      check(embeddings(*plain), embeddings(*grown));
      check(plain->head_weight().float_value(), grown->head_weight().float_value());

      // Saved, it is a model of its own.
      const Directory saved("saved");
      models::write_model_files({of.path(), of.path(), !grown->whole.empty()}, saved.path,
                                at::kFloat);
      models::save_weights(*grown, saved.path, at::kFloat);
      const auto again = models::load_model(saved.path);
      CHECK(at::equal(log_probabilities(*again, sequences), log_probabilities(*grown, sequences)));
      CHECK(Tokenizer::load_directory(saved.path)->id_of("</act>") == tokens + 1);
    }
  }
}

TEST_CASE("an adapter brings the new tokens that it was trained with") {
  const WithTokenizer of("llama_linear", 30);
  const WithTokenizer other("llama_linear", models::vocabulary_of(golden_model("llama_linear")));
  const Directory saved("saved"), plain("plain");
  const Sequences sequences{{3, 1, 4, 30, 31, 5}};
  const models::LoraConfig config{.rank = 2, .trained_tokens = {{.ids = {4, 30, 31}}}};
  models::use_new_tokens(of.path(), kNew, "test");
  const auto model = models::load_model(of.path());
  models::add_lora(*model, config, 1);
  for (const train::NamedParameter& p : train::trainable_parameters(*model)) {
    p.parameter->value().detach().add_(0.1);
    p.parameter->mark_updated();
  }
  models::save_adapter(*model, config, of.path(), saved.path);
  models::use_new_tokens(of.path(), {}, "test");
  models::save_adapter(*model, config, of.path(), plain.path);  // of a base without them
  CHECK(models::adapter_new_tokens(saved.path) == kNew);
  CHECK(models::adapter_new_tokens(plain.path).empty());

  models::use_tokens_of_adapters(of.path(), {saved.path});
  CHECK(models::new_tokens_of(of.path()) == kNew);
  const auto again = models::load_model(of.path());
  CHECK((models::load_adapter(*again, saved.path).trained_tokens == config.trained_tokens));
  CHECK(at::equal(log_probabilities(*again, sequences), log_probabilities(*model, sequences)));
  CHECK_THROWS_WITH_AS(models::use_tokens_of_adapters(of.path(), {saved.path, plain.path}),
                       doctest::Contains("different new tokens"), ConfigError);
  models::use_new_tokens(other.path(), {"a", "b", "c"}, "test");
  const auto larger = models::load_model(other.path());
  CHECK_THROWS_WITH_AS(models::load_adapter(*larger, saved.path),
                       doctest::Contains("was trained with new tokens"), ConfigError);
  // As many tokens, but others.
  models::use_new_tokens(of.path(), {"<act>", "<end>"}, "test");
  const auto differs = models::load_model(of.path());
  CHECK_THROWS_WITH_AS(models::load_adapter(*differs, saved.path),
                       doctest::Contains("token 2 is `</act>`, expected `<end>`"), ConfigError);
  models::load_adapter(*differs, plain.path);  // of no new tokens
}

TEST_CASE("an adapter's new tokens are compared with those of the model that it is loaded into") {
  const WithTokenizer of("llama_linear", 30), other("llama_linear", 31);
  const Directory saved("saved"), whole("whole");
  const models::LoraConfig config{.rank = 2, .trained_tokens = {{.ids = {30, 31}}}};
  models::use_new_tokens(of.path(), kNew, "test");
  const auto model = models::load_model(of.path());
  models::write_model_files({of.path(), of.path(), !model->whole.empty()}, whole.path, at::kFloat);
  models::save_weights(*model, whole.path, at::kFloat);
  models::add_lora(*model, config, 1);
  models::save_adapter(*model, config, of.path(), saved.path);
  // A model of as many rows with other tokens, beside one that has the adapter's.
  models::use_new_tokens(other.path(), {"<other>"}, "test");
  const auto of_others = models::load_model(other.path());
  REQUIRE(of_others->vocab_size == model->vocab_size);
  CHECK_THROWS_WITH_AS(models::load_adapter(*of_others, saved.path),
                       doctest::Contains("token 1 is `<act>`, expected `<other>`"), ConfigError);
  // One that has the adapter's tokens in its files, while only others are beyond files.
  models::use_new_tokens(of.path(), {}, "test");
  const auto in_files = models::load_model(whole.path);
  CHECK_NOTHROW(models::load_adapter(*in_files, saved.path));
}

TEST_CASE("a head's rows stay behind with it where a reward model goes on from an adapter") {
  const Directory saved("saved");
  const std::string base = golden_model("llama");
  const models::LoraConfig config{
      .rank = 2, .trained_tokens = {{.ids = {4, 7}}, {.module = "lm_head", .ids = {3, 5, 9}}}};
  const auto model = models::load_model(base);
  models::add_lora(*model, config, 1);
  for (const train::NamedParameter& p : train::trainable_parameters(*model)) {
    p.parameter->value().detach().add_(0.1);
    p.parameter->mark_updated();
  }
  models::save_adapter(*model, config, base, saved.path);
  const auto scalar = models::load_scalar_model(base, {}, 7);
  const models::LoraConfig found = models::load_adapter(*scalar, saved.path);
  CHECK((found.trained_tokens == std::vector<models::TrainedTokens>{{.ids = {4, 7}}}));
  const at::NoGradGuard no_grad;
  const auto forest = std::make_shared<Forest>();
  forest->add_root(std::vector<int32_t>{3, 4, 7, 5});
  CHECK(at::equal(scalar->forward({.forest = forest}), model->forward({.forest = forest})));
}

TEST_CASE("rows of a module that is named twice, or trains whole, say so") {
  const auto error = [](const models::LoraConfig& config) -> std::string {
    try {
      models::add_lora(*models::load_model(golden_model("llama")), config, 1);
    } catch (const ConfigError& e) {
      return e.what();
    }
    return "no error";
  };
  const std::string twice = error(
      {.rank = 2, .trained_tokens = {{.ids = {4}}, {.module = "model.embed_tokens", .ids = {5}}}});
  CHECK(twice.find("embed_tokens is named twice") != twice.npos);
  const std::string whole =
      error({.rank = 2, .modules_to_save = {"embed_tokens"}, .trained_tokens = {{.ids = {4}}}});
  CHECK(whole.find("embed_tokens trains whole (modules_to_save)") != whole.npos);
}

TEST_CASE("new tokens that cannot be are refused by name") {
  const WithTokenizer of("llama", 20);
  const auto refused = [&](const std::vector<std::string>& texts, const char* why) {
    CAPTURE(why);
    CHECK_THROWS_WITH_AS(models::use_new_tokens(of.path(), texts, "model.new_tokens"),
                         doctest::Contains(why), ConfigError);
    CHECK(models::new_tokens_of(of.path()).empty());
  };
  refused({"<x>", ""}, "model.new_tokens: found an empty text");
  refused({"<x>", "<x>"}, "model.new_tokens: `<x>` is named twice");
  refused({"t3"}, "`t3` is a token of");
  fs::remove(of.path() + "/tokenizer.json");
  refused({"<x>"}, "has no tokenizer.json");
}

TEST_CASE("rows that train get the whole table's gradient, and nothing else of it changes") {
  for (const char* name : {"llama", "llama_linear"}) {
    CAPTURE(name);
    const Sequences sequences{{3, 1, 4, 1, 5, 9}, {2, 6, 4, 4}};
    const auto whole = models::load_model(golden_model(name)),
               rows = models::load_model(golden_model(name));
    whole->each_parameter([](const std::string&, nn::Parameter& p) { p.set_trainable(false); });
    nn::Parameter& table = whole->body().embedding().weight;
    table.own();
    table.set_trainable(true);
    const std::vector<int64_t> ids{1, 4, 17};
    models::add_lora(*rows, {.rank = 2, .trained_tokens = {{.ids = ids}}}, 1);
    log_probabilities(*whole, sequences).sum().backward();
    log_probabilities(*rows, sequences).sum().backward();
    nn::TokenRows& trained = *rows->body().embedding().versions.rows();
    const at::Tensor expected = table.value().grad().index_select(0, at::tensor(ids));
    CHECK(difference(trained.weight.value().grad(), expected) < 1e-5);
    CHECK(!rows->body().embedding().weight.value().grad().defined());

    const at::Tensor before = embeddings(*rows).clone(),
                     base = log_probabilities(*rows, sequences, -1).detach();
    trained.weight.value().detach().add_(0.5);
    trained.weight.mark_updated();
    const at::Tensor after = embeddings(*rows);
    for (int64_t i = 0; i < before.size(0); ++i) {
      const bool moved = std::ranges::count(ids, i) > 0;
      CHECK(at::equal(after.select(0, i), before.select(0, i)) == !moved);
    }
    CHECK(at::equal(log_probabilities(*rows, sequences, -1), base));
    CHECK(!at::equal(log_probabilities(*rows, sequences), base));
    models::remove_adapter(*rows);
    CHECK(at::equal(log_probabilities(*rows, sequences), base));
  }
}
