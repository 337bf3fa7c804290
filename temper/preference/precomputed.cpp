#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "temper/base/clock.h"
#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/models/load.h"
#include "temper/nn/unit.h"
#include "temper/preference/reference.h"

namespace temper::preference {
namespace {
namespace fs = std::filesystem;

constexpr double kSecondsBetweenNotes = 20;
const std::string kFingerprint = "fingerprint";

// What tells a file from another version of it.
Json stamp(const fs::path& path) {
  std::error_code ignored;
  return {path.string(), fs::file_size(path, ignored),
          fs::last_write_time(path, ignored).time_since_epoch().count()};
}

void add_directory(Json& out, const std::string& directory) {
  std::map<std::string, Json> files;  // in one order on every machine
  for (const auto& entry : fs::directory_iterator(directory))
    if (entry.is_regular_file()) files[entry.path().string()] = stamp(entry.path());
  for (auto& [path, file] : files) out.push_back(std::move(file));
}

// Everything that the numbers depend on.
std::string fingerprint(const PreferenceConfig& config) {
  Json files = Json::array();
  add_directory(files, models::resolve_model_path(
                           config.preference.reference_model.value_or(config.model.path)));
  add_directory(files, config.model.path);
  if (config.adapter.path) add_directory(files, *config.adapter.path);
  for (const auto* sources : {&config.data.train, &config.data.eval})
    for (const data::DataSource& source : *sources)
      for (const std::string& path : data::find_row_files(source.path))
        files.push_back(stamp(path));
  if (!config.data.chat_template.empty()) files.push_back(stamp(config.data.chat_template));
  data::DataSection section = config.data;
  return Json{{"files", files},
              {"data", dump_yaml(write_fields(Fields::of(section)))},
              {"dtype", static_cast<int>(config.model.dtype)},
              {"arithmetic", static_cast<int>(config.model.arithmetic)},
              {"storage", config.model.storage ? static_cast<int>(*config.model.storage) : -1},
              {"adapter", static_cast<int>(config.adapter.method)},
              {"seed", config.seed}}
      .dump();
}

class PrecomputedReference : public Reference {
 public:
  PrecomputedReference(const PreferenceConfig& config, ReferenceRows rows, dist::Group& group,
                       train::Messages& messages,
                       const std::function<std::unique_ptr<train::Frozen>()>& make)
      : path_(config.output_dir + "/reference_logps.safetensors"),
        fingerprint_(fingerprint(config)),
        max_tokens_(config.train.micro_batch_tokens),
        rows_(std::move(rows)),
        group_(group),
        messages_(messages),
        make_(make) {
    if (!read()) model_ = make_();
  }

  void begin(const std::function<bool()>& stop) override {
    // A rank's own files may look different there: all compute where one must.
    if (group_.all_reduce_max(model_ != nullptr) == 0)
      return messages_.note("the reference's log-probabilities are read from " + path_);
    if (!model_) model_ = make_();
    messages_.note("computing the reference's log-probabilities (" + model_->describe() + ")");
    compute(stop);
    model_.reset();
    if (group_.writes()) write();
  }

  Sums sums(std::span<const PreferenceRow> rows, const train::ForwardPass&,
            const SideTargets& chosen, const SideTargets& rejected) override {
    const auto side = [&](const SideTargets& targets, int64_t column) {
      std::vector<double> values;
      for (const int64_t unit : targets.unit_S) {
        const PreferenceRow& row = rows[static_cast<size_t>(unit)];
        values.push_back(numbers_.at(row.file).at(static_cast<size_t>(2 * row.row + column)));
      }
      return at::tensor(values, at::kDouble);
    };
    return {side(chosen, 0), side(rejected, 1)};
  }
  std::string describe() const override { return "log-probabilities computed before training"; }

 private:
  // False: there is no such file, or it is of another model or other data.
  bool read() {
    if (!fs::exists(path_)) return false;
    TensorMap tensors = read_safetensors(path_);
    const auto text = tensors.find(kFingerprint);
    if (text == tensors.end() || bytes_of(text->second) != fingerprint_) return false;
    for (size_t s = 0; s < rows_.sets.size(); ++s) {
      const auto found = tensors.find(std::to_string(s));
      const size_t count = 2 * static_cast<size_t>(rows_.sets[s]->size());
      if (found == tensors.end() || found->second.num_bytes != count * sizeof(double)) return false;
      const at::Tensor values = models::to_tensor(found->second, at::kDouble).contiguous();
      const double* data = values.const_data_ptr<double>();
      numbers_[rows_.sets[s]].assign(data, data + count);
    }
    return true;
  }

  void write() const {
    TensorMap tensors;
    tensors[kFingerprint] = bytes_view(fingerprint_);
    for (size_t s = 0; s < rows_.sets.size(); ++s)
      tensors[std::to_string(s)] =
          models::to_view(at::tensor(numbers_.at(rows_.sets[s]), at::kDouble).view({-1, 2}));
    write_safetensors(path_, tensors);
  }

  // This rank's share of the rows, then everybody's.
  void compute(const std::function<bool()>& stop) {
    // Ranks make different numbers of passes.
    const nn::Gathered whole(*model_->model());
    int64_t total = 0, done = 0;
    for (const data::RowSet* set : rows_.sets) total += set->size();
    double said = steady_seconds();
    bool stopped = false;
    for (const data::RowSet* set : rows_.sets) {
      std::vector<double>& numbers = numbers_[set];
      numbers.assign(2 * static_cast<size_t>(set->size()), 0);
      for (int64_t r = group_.rank(); r < set->size() && !stopped;) {
        const int64_t next = compute_pass(*set, r, numbers);
        done += next - r;
        r = next;
        stopped = stop();
        if (steady_seconds() - said < kSecondsBetweenNotes) continue;
        said = steady_seconds();
        messages_.note(str("reference log-probabilities: ", done, " of ", total, " rows"));
      }
      group_.all_reduce_sum(numbers);  // each has zeros where another rank has numbers
    }
    check(group_.all_reduce_max(stopped) == 0, "stopped while the reference was computed");
  }

  // One pass of rows from `row` on; gives the row after them.
  int64_t compute_pass(const data::RowSet& set, int64_t row, std::vector<double>& numbers) {
    const at::NoGradGuard no_grad;
    train::ForwardPass pass;
    std::vector<int64_t> row_of_unit;
    for (; row < set.size(); row += group_.size()) {
      const std::optional<PreferenceRow> read = rows_.read(set, row);
      if (!read) continue;
      const bool full = pass.forest->num_tokens() + read->num_computed() > max_tokens_;
      if (full && !row_of_unit.empty()) break;
      const int64_t unit = static_cast<int64_t>(row_of_unit.size());
      pass.add(unit_of(*read, unit, Targets::kCompletions), 0);
      row_of_unit.push_back(row);
    }
    if (row_of_unit.empty()) return row;
    const at::Tensor logp_M = model_->token_logp(pass, 1);
    for (const Side side : {Side::kChosen, Side::kRejected}) {
      const SideTargets targets = side_targets(pass, side);
      const at::Tensor sums = targets.sum(logp_M);
      for (size_t s = 0; s < targets.unit_S.size(); ++s) {
        const int64_t of = row_of_unit[static_cast<size_t>(targets.unit_S[s])];
        numbers[static_cast<size_t>(2 * of + (side == Side::kRejected))] =
            sums.const_data_ptr<double>()[s];
      }
    }
    return row;
  }

  std::string path_, fingerprint_;
  int64_t max_tokens_;
  ReferenceRows rows_;
  dist::Group& group_;
  train::Messages& messages_;
  std::function<std::unique_ptr<train::Frozen>()> make_;
  std::unique_ptr<train::Frozen> model_;                        // while it computes
  std::map<const data::RowSet*, std::vector<double>> numbers_;  // two a row: chosen, rejected
};

}  // namespace

std::unique_ptr<Reference> precomputed_reference(
    const PreferenceConfig& config, ReferenceRows rows, dist::Group& group,
    train::Messages& messages, const std::function<std::unique_ptr<train::Frozen>()>& make) {
  return std::make_unique<PrecomputedReference>(config, std::move(rows), group, messages, make);
}

}  // namespace temper::preference
