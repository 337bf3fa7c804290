#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cstring>
#include <filesystem>
#include <iostream>

#include "temper/base/error.h"
#include "temper/cli/export_probe.h"
#include "temper/cli/parts/work.h"
#include "temper/io/weight_files.h"
#include "temper/models/adapters/adapter.h"
#include "temper/models/config.h"
#include "temper/models/files/directory.h"
#include "temper/models/files/new_tokens.h"
#include "temper/models/files/save.h"
#include "temper/models/files/stream.h"
#include "temper/models/gguf/gguf.h"
#include "temper/text/chat/chat_template.h"

namespace temper::cli {

namespace {

class Export : public Command {
 public:
  void declare(Flags& f) override;
  int run() override;

 private:
  void check_output() const;
  template <class Head>
  void run_hf(at::ScalarType type) const;
  void run_gguf(at::ScalarType type) const;
  models::Storage merged_into() const;
  template <class Head>
  void print_drift(const Probe& merged) const;
  template <class Head>
  void check_probe(const Probe& before, const Probe& after, const char* then) const;

  std::string model_dir, tokenizer, adapter, output, dtype = "float32", format = "hf", storage;
  std::optional<models::BaseFormat> trained;  // how the adapter's base was kept
};

void Export::declare(Flags& f) {
  f.about(
      "Merges an adapter, converts the dtype, then loads the written model and compares it.\n"
      "example: temper export --model DIR --adapter runs/lora/final --output merged --dtype "
      "bfloat16\n"
      "example: temper export --model DIR --output gguf --format gguf --dtype float16");
  add_base_model(f, model_dir, adapter);
  add_tokenizer(f, model_dir, tokenizer);
  f.add("--adapter", adapter, "directory of a PEFT LoRA or DoRA adapter to merge");
  f.then([this] {
    if (!adapter.empty()) models::use_tokens_of_adapters(model_dir, {adapter});
  });
  f.add("--output", output, "the new model directory, with --format gguf that of the file",
        required());
  f.add("--format", format,
        "file format; hf: safetensors in a Hugging Face directory; gguf: one file for llama.cpp, "
        "with tokenizer and chat template",
        one_of({"hf", "gguf"}));
  add_written_dtype(f, dtype);
  f.add("--storage", storage,
        "merge into the weights as quantized to this format, which a run with the same "
        "model.storage used: " +
            models::storage_help() + "; default: the original weights",
        one_of(models::storage_names()));
}

// Compares the written tensors with the merged weights, rounded once, which are made again one by
// one.
void check_written(const std::vector<std::pair<std::string, TensorView>>& tensors,
                   const std::string& output) {
  const TensorMap written = read_weights(output);
  check(written.size() == tensors.size(), output, ": ", written.size(), " tensors read back, ",
        tensors.size(), " were written");
  for (const auto& [name, view] : tensors) {
    const auto read = written.find(name);
    check(read != written.end() && read->second.dtype == view.dtype &&
              read->second.shape == view.shape,
          output, ": `", name, "` reads back in another form");
    const TensorView made = view.make();
    check(std::memcmp(made.data, read->second.data, made.num_bytes) == 0, output, ": `", name,
          "` reads back differently from what was written");
    give_back_pages(made);
    give_back_pages(read->second);
  }
}

// Language models: numbers to compare are log-probabilities of a probe.
struct VocabularyHead {
  static constexpr models::HeadKind kKind = models::HeadKind::kVocabulary;
  static constexpr const char *kWhat = "", *kNumbers = "log-probabilities";
  static auto load(const std::string& directory, const std::string& adapter,
                   const models::Storage& kept) {
    return models::stream_model(directory, adapter, kept);
  }
  static Probe numbers(models::CausalLM& model) { return probe_of(model); }
};

// Reward models, as `temper reward` leaves them: the scalar of each of the probe's tokens.
struct ScalarHead {
  static constexpr models::HeadKind kKind = models::HeadKind::kScalar;
  static constexpr const char *kWhat = ", a reward model", *kNumbers = "scalars";
  static auto load(const std::string& directory, const std::string& adapter,
                   const models::Storage& kept) {
    return models::stream_scalar_model(directory, adapter, kept);
  }
  static Probe numbers(models::ScalarModel& model) { return probe_of(model); }
};

// The weights to merge into: the original ones, or as --storage says; where an adapter was trained
// on such weights, just as they were then.
models::Storage Export::merged_into() const {
  const bool same = trained && trained->storage == storage;
  return models::storage_of({same ? trained->dtype : "", storage});
}

// What quantization makes of the model: `merged` are its numbers before anything is written.
template <class Head>
void Export::print_drift(const Probe& merged) const {
  const auto print = [&](const std::string& what, const models::Storage& other,
                         const std::string& hint) {
    std::cout << Head::kNumbers << " of a probe, against " << what << ": at most "
              << largest_difference(merged,
                                    Head::numbers(*Head::load(model_dir, adapter, other).model))
              << " apart" << hint << "\n";
  };
  if (models::BaseFormat{dtype, storage}.is_rounded()) return print("the original weights", {}, "");
  if (trained && trained->is_rounded())
    print("training, on " + trained->storage + " weights",
          models::storage_of({trained->dtype, trained->storage}),
          "; --storage " + trained->storage + " merges into the quantized weights");
}

// What is merged and written as it is computed with gives the same numbers.
template <class Head>
void Export::check_probe(const Probe& before, const Probe& after, const char* then) const {
  if (dtype != "float32" || !storage.empty()) return;
  check(are_of_one_model(before, after), output, ": the ", Head::kNumbers,
        " of the exported model differ from those of ", model_dir,
        adapter.empty() ? "" : " with the adapter " + adapter, " by up to ",
        largest_difference(before, after), ", expected at most ", kSameModel,
        "; please report this", then);
}

// The directories of a path, made where they are not there. Of those that were made the empty ones
// go again: a failed export leaves none.
class MadeDirectories {
 public:
  explicit MadeDirectories(const std::filesystem::path& path) {
    for (auto place = path; !place.empty() && !std::filesystem::exists(place);
         place = place.parent_path())
      made_.push_back(place);
    std::filesystem::create_directories(path);
  }
  ~MadeDirectories() {
    std::error_code not_empty;
    for (const std::filesystem::path& place : made_) std::filesystem::remove(place, not_empty);
  }
  MadeDirectories(const MadeDirectories&) = delete;
  MadeDirectories& operator=(const MadeDirectories&) = delete;

 private:
  std::vector<std::filesystem::path> made_;  // from the innermost one on
};

// config.json is written last: a directory whose writing was interrupted is no model.
template <class Head>
void Export::run_hf(at::ScalarType type) const {
  models::Storage kept = merged_into();
  kept.whole = true;
  auto source = Head::load(model_dir, adapter, kept);
  const Probe before = Head::numbers(*source.model);
  const bool untied = models::adapts_tied_head(*source.model), whole = !source.model->whole.empty();
  const auto tensors = source.weights->merged_tensors(type);
  const MadeDirectories made(output);
  write_safetensors_model(output, tensors);
  models::write_model_files({model_dir, model_dir, whole}, output, type, Head::kKind, untied);
  ChatTemplate::copy_own(model_dir, adapter, output);
  check_written(tensors, output);
  source.weights.reset();
  source.model.reset();
  const Probe after = Head::numbers(*Head::load(output, "", {}).model);
  try {
    check_probe<Head>(before, after, "; its config.json was removed, so that nothing loads it");
  } catch (const RunError&) {
    std::filesystem::remove(output + "/config.json");  // it is no model
    throw;
  }
  std::cout << output << ": " << dtype << Head::kWhat << ", read back equal; " << Head::kNumbers
            << " of a probe differ from those before merging and writing by at most "
            << largest_difference(before, after) << "\n";
  print_drift<Head>(before);
}

// One file for llama.cpp. What it has no form for is said before any weight is read.
void Export::run_gguf(at::ScalarType type) const {
  check<ConfigError>(!models::has_scalar_head(model_dir, adapter),
                     "--format gguf: ", adapter.empty() ? model_dir : adapter,
                     " is a reward model, and llama.cpp has no form for its scalar head; export "
                     "it with --format hf");
  models::GgufHeader header = models::gguf_header(model_dir, type, adapter);
  auto source = VocabularyHead::load(model_dir, adapter, merged_into());
  const bool untied = models::adapts_tied_head(*source.model);
  if (untied) header = models::gguf_header(model_dir, type, adapter, untied);
  for (const std::string& note : header.notes) std::cerr << "warning: " << note << "\n";
  const Probe before = VocabularyHead::numbers(*source.model);
  models::StreamedModel<models::CausalLM> merged;
  std::string probed;
  if (!adapter.empty()) {
    merged = models::stream_merged(model_dir, *source.weights, untied);
    const Probe after = VocabularyHead::numbers(*merged.model);
    check_probe<VocabularyHead>(before, after, "");
    probed = str("; log-probabilities of a probe differ from those before merging by at most ",
                 largest_difference(before, after));
  }
  const auto& written = adapter.empty() ? source : merged;
  const MadeDirectories made(output);
  const std::string path = output + "/model-" + dtype + ".gguf";
  models::save_gguf(*written.model, header, path, type,
                    [&](nn::Parameter& p) { return written.weights->merged(p); });
  std::cout << path << ": " << dtype << ", keys and tensors read back equal" << probed << "\n";
  merged.weights.reset();  // which reads from the other's
  merged.model.reset();
  source.weights.reset();
  source.model.reset();
  print_drift<VocabularyHead>(before);
}

void Export::check_output() const {
  namespace fs = std::filesystem;
  std::error_code ignored;
  check<ConfigError>(!fs::exists(output, ignored) || fs::is_directory(output, ignored), "--output ",
                     output, ": is a file");
  bool holds_model = fs::exists(output + "/config.json", ignored) ||
                     fs::exists(output + "/adapter_config.json", ignored);
  for (const auto& entry : fs::directory_iterator(output, ignored))
    holds_model = holds_model || entry.path().extension() == ".gguf";
  check<ConfigError>(!holds_model, "--output ", output,
                     ": holds a model or an adapter already; remove it or choose another");
}

int Export::run() {
  check_output();
  const at::ScalarType type = scalar_type_of(dtype);
  if (!adapter.empty()) {
    warn_of_other_base(model_dir, adapter);
    trained = models::adapter_base_format(adapter);
  }
  if (format == "gguf")
    run_gguf(type);
  else if (models::has_scalar_head(model_dir, adapter))
    run_hf<ScalarHead>(type);
  else
    run_hf<VocabularyHead>(type);
  return 0;
}

}  // namespace

std::unique_ptr<Command> export_command() { return std::make_unique<Export>(); }

}  // namespace temper::cli
