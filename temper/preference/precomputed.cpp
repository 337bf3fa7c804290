#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <xxhash.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "temper/base/clock.h"
#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/base/stopped.h"
#include "temper/io/gguf.h"
#include "temper/models/files/load.h"
#include "temper/nn/unit.h"
#include "temper/preference/reference.h"

namespace temper::preference {
namespace {
namespace fs = std::filesystem;

constexpr double kSecondsBetweenNotes = 20;
const std::string kFingerprint = "fingerprint";
// suffix of the tensor of tokens_hash(), after a set's number
constexpr const char* kTokens = ".tokens";

// Size and times of a file, which tell it from another version.
Json stamp(const fs::path& path) {
  std::error_code ignored;
  return {path.string(), fs::file_size(path, ignored),
          fs::last_write_time(path, ignored).time_since_epoch().count()};
}

// The files of a model or adapter: those of a directory, or a GGUF file with its other parts.
void add_model(Json& out, const std::string& model) {
  std::set<std::string> files;  // in one order on every machine
  if (is_gguf_file(model)) {
    const std::vector<std::string> parts = gguf_shards(model);
    files.insert(parts.begin(), parts.end());
  } else {
    for (const auto& entry : fs::directory_iterator(model))
      if (entry.is_regular_file()) files.insert(entry.path().string());
  }
  for (const std::string& file : files) out.push_back(stamp(file));
}

// Everything that the numbers depend on.
std::string fingerprint(const PreferenceConfig& config) {
  Json files = Json::array();
  add_model(files, models::resolve_model_path(
                       config.preference.reference_model.value_or(config.model.path)));
  add_model(files, config.model.path);
  if (config.adapter.path) add_model(files, *config.adapter.path);
  for (const auto* sources : {&config.data.train, &config.data.eval})
    for (const data::DataSource& source : *sources)
      for (const std::string& path : data::find_row_files(source.path))
        files.push_back(stamp(path));
  if (!config.data.chat_template.empty()) files.push_back(stamp(config.data.chat_template));
  data::DataSection section = config.data;
  models::ModelSection model = config.model;
  return Json{{"files", files},
              {"data", dump_yaml(write_fields(Fields::of(section)))},
              {"earlier_rules", config.data.earlier_rules},
              {"model", dump_yaml(write_fields(Fields::of(model)))},
              {"adapter", static_cast<int>(config.adapter.method)},
              {"seed", config.seed}}
      .dump();
}

// A hash of the tokens, labels and images of both sides: 52 bits, so that a double holds it exactly
// when ranks sum.
int64_t tokens_hash(const PreferenceRow& row) {
  std::vector<int32_t> all;
  for (const PreferenceRow::Segment& segment : row.segments) {
    all.push_back(segment.parent);
    all.push_back(segment.chosen * 4 + segment.rejected * 2 + segment.prompt);
    all.insert(all.end(), segment.tokens.begin(), segment.tokens.end());
    all.insert(all.end(), segment.labels.begin(), segment.labels.end());
    for (const ImageSpan& span : segment.images) {
      const std::string& digest = span.image->digest();
      const uint64_t image = XXH3_64bits(digest.data(), digest.size());
      all.push_back(static_cast<int32_t>(image));
      all.push_back(static_cast<int32_t>(image >> 32));
    }
  }
  return static_cast<int64_t>(XXH3_64bits(all.data(), all.size() * sizeof(int32_t)) >> 12);
}

// The numbers of the rows of one data set.
struct RowNumbers {
  std::vector<double> logp;     // [2 rows] chosen and rejected of each row
  std::vector<int64_t> tokens;  // [rows] tokens_hash() of each row
};

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
    if (group_.is_writer()) write();
  }

  Sums sums(std::span<const PreferenceRow> rows, const train::ForwardPass&,
            const SideTargets& chosen, const SideTargets& rejected) override {
    const auto side = [&](const SideTargets& targets, int64_t column) {
      std::vector<double> values;
      for (const int64_t unit : targets.unit_S) {
        const PreferenceRow& row = rows[static_cast<size_t>(unit)];
        const auto of = static_cast<size_t>(row.row);
        const RowNumbers& numbers = numbers_.at(row.file);
        check<DataError>(
            numbers.tokens.at(of) == tokens_hash(row), row.file->where(row.row),
            ": its tokens or images are not those whose reference log-probabilities are in ", path_,
            "; remove that file, and they are computed anew");
        values.push_back(numbers.logp.at(2 * of + static_cast<size_t>(column)));
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
      const auto logp = tensors.find(std::to_string(s)), hash = tensors.find(str(s, kTokens));
      const auto count = static_cast<size_t>(rows_.sets[s]->size());
      if (logp == tensors.end() || logp->second.num_bytes != 2 * count * sizeof(double) ||
          hash == tensors.end() || hash->second.num_bytes != count * sizeof(int64_t))
        return false;
      const at::Tensor values = models::to_tensor(logp->second, at::kDouble).contiguous(),
                       hashes = models::to_tensor(hash->second, at::kLong).contiguous();
      RowNumbers& numbers = numbers_[rows_.sets[s]];
      const double* data = values.const_data_ptr<double>();
      numbers.logp.assign(data, data + 2 * count);
      const int64_t* tokens = hashes.const_data_ptr<int64_t>();
      numbers.tokens.assign(tokens, tokens + count);
    }
    return true;
  }

  void write() const {
    TensorMap tensors;
    tensors[kFingerprint] = bytes_view(fingerprint_);
    for (size_t s = 0; s < rows_.sets.size(); ++s) {
      const RowNumbers& numbers = numbers_.at(rows_.sets[s]);
      tensors[std::to_string(s)] =
          models::to_view(at::tensor(numbers.logp, at::kDouble).view({-1, 2}));
      tensors[str(s, kTokens)] = models::to_view(at::tensor(numbers.tokens, at::kLong));
    }
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
      RowNumbers& numbers = numbers_[set];
      numbers.logp.assign(2 * static_cast<size_t>(set->size()), 0);
      numbers.tokens.assign(static_cast<size_t>(set->size()), 0);
      for (int64_t r = group_.rank(); r < set->size() && !stopped;) {
        const int64_t next = compute_pass(*set, r, numbers);
        done += next - r;
        r = next;
        stopped = stop();
        if (steady_seconds() - said < kSecondsBetweenNotes) continue;
        said = steady_seconds();
        messages_.note(str("reference log-probabilities: ", done, " of ", total, " rows"));
      }
      // Each rank has zeros where another one has numbers.
      group_.all_reduce_sum(numbers.logp);
      std::vector<double> tokens(numbers.tokens.begin(), numbers.tokens.end());
      group_.all_reduce_sum(tokens);
      numbers.tokens.assign(tokens.begin(), tokens.end());
    }
    check<Stopped>(group_.all_reduce_max(stopped) == 0, "stopped while the reference was computed");
  }

  // One pass of rows from `row` on; gives the row after them.
  int64_t compute_pass(const data::RowSet& set, int64_t row, RowNumbers& numbers) {
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
      numbers.tokens[static_cast<size_t>(row)] = tokens_hash(*read);
    }
    if (row_of_unit.empty()) return row;
    const at::Tensor logp_M = model_->token_logp(pass, 1);
    for (const Side side : {Side::kChosen, Side::kRejected}) {
      const SideTargets targets = side_targets(pass, side);
      const at::Tensor sums = targets.sum(logp_M);
      for (size_t s = 0; s < targets.unit_S.size(); ++s) {
        const int64_t of = row_of_unit[static_cast<size_t>(targets.unit_S[s])];
        numbers.logp[static_cast<size_t>(2 * of + (side == Side::kRejected))] =
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
  std::unique_ptr<train::Frozen> model_;  // null unless it computes
  std::map<const data::RowSet*, RowNumbers> numbers_;
};

}  // namespace

std::unique_ptr<Reference> precomputed_reference(
    const PreferenceConfig& config, ReferenceRows rows, dist::Group& group,
    train::Messages& messages, const std::function<std::unique_ptr<train::Frozen>()>& make) {
  return std::make_unique<PrecomputedReference>(config, std::move(rows), group, messages, make);
}

}  // namespace temper::preference
