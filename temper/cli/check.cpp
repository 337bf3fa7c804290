// temper check: checks a run before it starts.
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "temper/base/error.h"
#include "temper/base/json.h"
#include "temper/base/memory.h"
#include "temper/check/check_run.h"
#include "temper/check/memory/mesh_plan.h"
#include "temper/check/shown_row.h"
#include "temper/cli/parts/plan_tables.h"
#include "temper/cli/parts/shared_config.h"
#include "temper/cli/training.h"
#include "temper/cli/verbs.h"
#include "temper/metrics/format.h"
#include "temper/text/tokenizer/tokenizer.h"
#include "temper/text/unicode.h"

namespace temper::cli {
namespace {

constexpr const char *kTrainedColor = "\033[1;32m", *kFaint = "\033[2m", *kPlain = "\033[0m";

std::string text_of_run(const std::vector<int32_t>& tokens, size_t begin, size_t end,
                        const Tokenizer* tokenizer) {
  if (tokenizer) return tokenizer->decode(std::span(tokens).subspan(begin, end - begin));
  std::string text;
  for (size_t i = begin; i < end; ++i) text += (i == begin ? "" : " ") + std::to_string(tokens[i]);
  return text + " ";
}

// The end of what is shown as one: image tokens, or others that are all trained or all not.
size_t end_of_run(const checks::ShownPath& path, size_t begin, const ImageSpan* image) {
  if (image && static_cast<size_t>(image->begin) == begin)
    return begin + static_cast<size_t>(image->count);
  const size_t most = image ? static_cast<size_t>(image->begin) : path.tokens.size();
  size_t end = begin;
  while (end < most && path.trained[end] == path.trained[begin]) ++end;
  return end;
}

// "[image 640 x 480: 391 tokens]"; of a further tile of an image "[64 tokens more]".
std::string mark_of(const ImageSpan& span) {
  const ImageSize size = span.image->size();
  if (span.first > 0) return str("[", span.count, " tokens more]");
  return str("[image ", size.width, " x ", size.height, ": ", span.count, " tokens]");
}

void show_path(std::ostream& out, const checks::ShownPath& path, const Tokenizer* tokenizer,
               bool terminal) {
  size_t images = 0;  // shown
  for (size_t begin = 0; begin < path.tokens.size();) {
    const ImageSpan* const next = images < path.images.size() ? &path.images[images] : nullptr;
    const size_t end = end_of_run(path, begin, next);
    const bool trained = path.trained[begin];
    const bool is_image = next && static_cast<size_t>(next->begin) == begin;
    images += is_image;
    const std::string text =
        is_image ? mark_of(*next) : printable(text_of_run(path.tokens, begin, end, tokenizer));
    if (terminal)
      out << (trained ? kTrainedColor : kFaint) << text << kPlain;
    else
      out << (trained ? "⟦" : "") << text << (trained ? "⟧" : "");
    begin = end;
  }
  out << "\n";
}

// On a terminal trained tokens are green and others faint; elsewhere trained ones stand between
// ⟦ and ⟧. Without a tokenizer ids are printed.
void show_row(std::ostream& out, const checks::ShownRow& row, const Tokenizer* tokenizer,
              bool terminal) {
  for (const checks::ShownPath& path : row.paths) {
    const auto trained = std::count(path.trained.begin(), path.trained.end(), true);
    out << "\n"
        << printable_line(row.where) << (path.name.empty() ? "" : ", " + path.name) << ": "
        << format_count(static_cast<double>(path.tokens.size())) << " tokens, "
        << format_count(static_cast<double>(trained)) << " trained"
        << (terminal ? " (green)" : " (between ⟦ and ⟧)") << "\n";
    show_path(out, path, tokenizer, terminal);
  }
  out << std::flush;
}

// {"where", "paths": [{"name", "tokens", "trained": [0 | 1, ..], "text", "images": [{"begin",
// "tokens", "width", "height"}, ..]}]}; images where there are any, one for each of its tiles.
Json json_of_row(const checks::ShownRow& row, const Tokenizer* tokenizer) {
  Json out{{"where", row.where}, {"paths", Json::array()}};
  for (const checks::ShownPath& path : row.paths) {
    Json item{{"name", path.name}, {"tokens", path.tokens}, {"trained", Json::array()}};
    for (const bool trained : path.trained) item["trained"].push_back(trained ? 1 : 0);
    for (const ImageSpan& span : path.images)
      item["images"].push_back({{"begin", span.begin},
                                {"tokens", span.count},
                                {"width", span.image->size().width},
                                {"height", span.image->size().height}});
    if (tokenizer) item["text"] = tokenizer->decode(path.tokens);
    out["paths"].push_back(std::move(item));
  }
  return out;
}

class Check : public Command {
 public:
  void declare(Flags& f) override {
    f.about(
        "Checks a run before it starts: its config, model, rows, rewards, directory, disk and "
        "memory. Nothing is trained, and nothing is written.\n"
        "VERB is that of the run; a resolved config names it itself. Exit status 0 when all holds, "
        "2 when a check fails.\n"
        "examples:\n"
        "  temper check sft model.path=MODEL data.train=rows.jsonl output_dir=runs/a\n"
        "  temper check grpo configs/grpo_gsm8k.yaml rl.group_size=16 --json\n"
        "  temper check sft configs/sft.yaml --show 1\n"
        "  temper check sft configs/sft.yaml --nproc 4 mesh.fsdp=4\n"
        "  temper check sft model.path=DIR --mesh "
        "devices=64,memory=80GiB,bandwidth=400GB/s,network=50GB/s,flops=400TFLOPS");
    f.add("CONFIG", words_, "[VERB] file.yaml ... dotted.key=value ...", required());
    f.add("--json", json_, "write one JSON object");
    f.add("--nproc", ranks_, "ranks of the run", at_least(1));
    f.add("--show", show_,
          "print row N of data.train, from 1, as it is trained: which tokens are context, which "
          "are learned",
          at_least(1));
    f.add("--mesh", mesh_,
          "plan every mesh of other machines, from config.json alone: "
          "devices=N,memory=BYTES,bandwidth=BYTES/s within a host,network=BYTES/s between "
          "hosts,flops=N a device,per_host=N,sequence=TOKENS of a row,tokens=TOKENS of a "
          "step,bytes=N of an activation");
  }

  int run() override {
    const int64_t program = peak_memory_bytes();
    Arguments rest = words_;
    const std::string verb = take_verb(rest);
    return std::visit(
        [&](auto config) { return check<typename decltype(config)::type>(verb, rest, program); },
        find_training_verb(verb)->config);
  }

 private:
  // The first word, or what the config says. Throws ConfigError.
  std::string take_verb(Arguments& rest) const {
    if (find_training_verb(rest[0])) {
      const std::string verb = rest[0];
      rest.erase(rest.begin());
      return verb;
    }
    const bool is_word =
        rest[0].find_first_of("./=") == std::string::npos && !std::filesystem::exists(rest[0]);
    if (mesh_ && !is_word) return "sft";
    std::string found = rest[0];
    if (!is_word) {
      const YamlNode written = read_config_arguments(rest);
      const YamlNode* node = find_key(written, "verb");
      found = node ? node->text : "";
    }
    std::string known;
    for (const TrainingVerb& verb : training_verbs())
      known += (known.empty() ? "" : ", ") + std::string(verb.name);
    temper::check<ConfigError>(
        find_training_verb(found) != nullptr,
        "check: ", found.empty() ? "the config names no verb" : "unknown verb `" + found + "`",
        "; expected `temper check VERB CONFIG` with VERB one of ", known);
    return found;
  }

  template <class Config>
  int check(const std::string& verb, Arguments rest, int64_t program) {
    Config config;
    if (mesh_) rest = with_placeholders(std::move(rest));
    try {
      read_verb_config(config, rest, verb);
    } catch (const Error& e) {
      if (!json_) throw;
      checks::CheckList list;
      list.add("config", checks::Finding::fail(e.what()));
      std::cout << json_of(list, nullptr, {}) << std::endl;
      return 2;
    }
    checks::RunChecks checks(
        config, {.ranks = ranks_, .program_bytes = program, .show = show_, .longest_row = true});
    std::vector<checks::MeshCost> meshes;
    if (!mesh_) {
      checks::check_run(checks, config);
    } else {
      checks::Machine machine = checks::parse_machine(*mesh_);
      meshes = checks::check_meshes(checks, machine);
      if (!json_) print_meshes(std::cout, checks.shape, machine, meshes);
    }
    const checks::MemoryPlan* memory = checks.plan ? &*checks.plan : nullptr;
    const Tokenizer* const tokenizer = checks.policy.tokenizer.get();
    if (json_) {
      std::cout << json_of(checks.list, memory, meshes,
                           checks.shown ? json_of_row(*checks.shown, tokenizer) : Json())
                << std::endl;
    } else {
      print_checks(std::cout, checks.list, mesh_ ? nullptr : memory);
      print_rates(std::cout, checks.rates);
      if (checks.shown) show_row(std::cout, *checks.shown, tokenizer, ::isatty(STDOUT_FILENO) == 1);
    }
    return checks.list.failed() ? 2 : 0;
  }

  // What a plan does not read, but a config must have.
  static Arguments with_placeholders(Arguments rest) {
    const Arguments placeholders{"output_dir=plan", "data.train=plan.jsonl"};
    rest.insert(rest.begin(), placeholders.begin(), placeholders.end());
    return rest;
  }

  Arguments words_;
  bool json_ = false;
  int64_t ranks_ = 0, show_ = 0;
  std::optional<std::string> mesh_;
};

}  // namespace

std::unique_ptr<Command> check_command() { return std::make_unique<Check>(); }

}  // namespace temper::cli
