// Every key of every family's config changed alone (tests/golden/make_config_mutations.py): the
// log-probabilities move as transformers' do, or the config is refused by the key's name.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>

#include "temper/base/json.h"
#include "temper/io/safetensors.h"
#include "temper/models/files/load.h"
#include "tests/models/golden.h"

using namespace temper;
namespace fs = std::filesystem;
using models::HfConfig;

namespace {

constexpr double kTolerance = 1e-5;  // of tests/models/golden_test.cpp

// The object of a config whose keys the goldens change.
Json& text_of(Json& config) {
  return config.contains("text_config") ? config["text_config"] : config;
}

Json changed(Json config, const Json& change) {
  Json& text = text_of(config);
  const Json values = change.value("set", Json::object());
  for (const auto& [pointer, value] : values.items()) {
    const Json::json_pointer at(pointer);
    if (!at.parent_pointer().empty() && text.contains(at.parent_pointer()) &&
        !text[at.parent_pointer()].is_object())
      text[at.parent_pointer()] = Json::object();
    text[at] = value;
  }
  for (const Json& pointer : change.value("unset", Json::array())) {
    const Json::json_pointer at(pointer.get<std::string>());
    if (text.contains(at)) text[at.parent_pointer()].erase(at.back());
  }
  return config;
}

// Every key that a change is of, also those within its values.
std::set<std::string> names_in(const Json& change) {
  std::set<std::string> names;
  const auto add = [&](std::string pointer) {
    for (size_t slash; (slash = pointer.rfind('/')) != pointer.npos; pointer.resize(slash))
      names.insert(pointer.substr(slash + 1));
  };
  const std::function<void(const Json&)> within = [&](const Json& value) {
    if (!value.is_object()) return;
    for (const auto& [key, inner] : value.items()) {
      names.insert(key);
      within(inner);
    }
  };
  for (const Json& pointer : change.value("unset", Json::array())) add(pointer);
  const Json values = change.value("set", Json::object());
  for (const auto& [pointer, value] : values.items()) {
    add(pointer);
    within(value);
  }
  return names;
}

bool names_one(const std::string& message, const std::set<std::string>& names) {
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& name) { return message.find(name) != message.npos; });
}

// A golden model's weights under changed configs.
class Model {
 public:
  explicit Model(const std::string& name)
      : source_(golden_model(name)), directory_("mutation_" + name) {
    fs::create_symlink(source_ + "/model.safetensors", directory_.path + "/model.safetensors");
    sequences_ = read_json_file(source_ + "/expected.json")["sequences"].get<Sequences>();
    logp = models::to_tensor(read_safetensors(source_ + "/expected.safetensors").at("logp"),
                             at::kFloat);
  }
  Json config(const std::string& file) const { return read_json_file(source_ + "/" + file); }

  // Throws what says that the config is refused.
  at::Tensor log_probabilities(const Json& config) {
    std::ofstream(directory_.path + "/config.json") << config.dump();
    const at::NoGradGuard no_grad;
    const auto model = models::load_model(directory_.path, {}, false);
    return temper::log_probabilities(*model, sequences_);
  }

  at::Tensor logp;

 private:
  std::string source_;
  Directory directory_;
  Sequences sequences_;
};

struct Counts {
  int moved = 0, same = 0, refused = 0;
};

// Models this small are quickest on one thread, and there are thousands of them.
struct OneThread {
  OneThread() : before(at::get_num_threads()) { at::set_num_threads(1); }
  ~OneThread() { at::set_num_threads(before); }
  int before;
};

// The log-probabilities of the goldens' rows.
at::Tensor expected_rows(const Json& millionths) {
  const std::vector<double> values = millionths;
  return at::tensor(values, at::kDouble) / 1e6;
}

}  // namespace

TEST_CASE(
    "every key of a config changed alone moves log-probabilities as transformers', or is "
    "refused by its name") {
  const Json goldens = read_json_file(golden_path("config_mutations.json"));
  const at::Tensor rows = at::tensor(goldens["rows"].get<std::vector<int64_t>>(), at::kLong);
  const OneThread one_thread;
  std::set<std::string> checked;
  for (const auto& [name, files] : goldens["models"].items()) {
    Model model(name);
    for (const auto& [file, found] : files.items()) {
      const Json config = model.config(file);
      checked.insert(HfConfig::parse(config, file).model_type());
      Counts counts;
      const auto compare = [&](const Json& change, const Json* moved) {
        const std::string what = name + "/" + file + " " + change.dump();
        try {
          const at::Tensor logp = model.log_probabilities(changed(config, change));
          const double apart =
              moved ? difference(logp.index_select(0, rows).to(at::kDouble), expected_rows(*moved))
                    : difference(logp, model.logp);
          CHECK_MESSAGE(apart < kTolerance, what << ": apart by " << apart);
          ++(moved ? counts.moved : counts.same);
        } catch (const Error& error) {
          CHECK_MESSAGE(names_one(error.what(), names_in(change)), what << ": " << error.what());
          ++counts.refused;
          if (std::getenv("TEMPER_SHOW_REFUSED"))
            std::printf("%s: %s\n", what.c_str(), error.what());
        }
      };
      for (const auto& [index, logp] : found["moved"].items())
        compare(goldens["changes"][std::stoul(index)], &logp);
      for (const Json& index : found["same"])
        compare(goldens["changes"][index.get<size_t>()], nullptr);
      // Keys of other families: those that are not refused are not read, alone or together.
      Json all = config;
      for (const std::string key : found["foreign"]) {
        const Json change = {{"set", {{"/" + key, goldens["foreign"][key]}}}};
        try {
          const HfConfig alone = HfConfig::parse(changed(config, change), file);
          models::family_of(alone).config(alone);
          all = changed(all, change);
          ++counts.same;
        } catch (const Error& error) {
          CHECK_MESSAGE(names_one(error.what(), {key}), name << " " << key << ": " << error.what());
          ++counts.refused;
        }
      }
      CHECK_MESSAGE(difference(model.log_probabilities(all), model.logp) < kTolerance,
                    name << ": keys of other families");
      CHECK_MESSAGE(3 * counts.refused < 2 * counts.moved + counts.same,
                    name << ": most is refused");
      if (std::getenv("TEMPER_SHOW_DIFFERENCES"))
        std::printf("%s %s\tmoved %d\tsame %d\trefused %d\n", name.c_str(), file.c_str(),
                    counts.moved, counts.same, counts.refused);
    }
  }
  for (const std::string& family : built_in_families())
    CHECK_MESSAGE(checked.contains(family), family);
}
