#include "temper/distill/teacher_file.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <filesystem>

#include "temper/base/error.h"
#include "temper/base/random.h"
#include "temper/io/safetensors.h"
#include "temper/models/files/directory.h"
#include "temper/models/files/tensors.h"

namespace temper::distill {
namespace {

// One step of a 64-bit hash: Philox keyed by what came before.
uint64_t mixed(uint64_t hash, int32_t token) {
  const std::array<uint32_t, 4> words =
      philox({static_cast<uint32_t>(hash), static_cast<uint32_t>(hash >> 32)},
             {static_cast<uint32_t>(token), 0x7465, 0x6d70, 0x6572});
  return words[0] | uint64_t{words[1]} << 32;
}

// However it is written: models are compared by it.
std::string canonical(const std::string& directory) {
  std::error_code ignored;
  const std::filesystem::path path = std::filesystem::weakly_canonical(directory, ignored);
  return path.empty() ? directory : path.string();
}

std::optional<std::string> date_of(const TensorMap& tensors) {
  const auto found = tensors.find("date");
  return found == tensors.end() ? std::nullopt : std::optional(bytes_of(found->second));
}

class TeacherFile : public RemoteTeacher {
 public:
  TeacherFile(const DistillConfig& config, int64_t vocabulary)
      : path_(*config.distill.teacher_logprobs) {
    const std::string &path = path_, where = config.where("distill.teacher_logprobs");
    const int64_t top_k = config.distill.top_k;
    const TensorMap tensors = read_safetensors(path);
    const auto tensor = [&](const char* name, DType dtype, size_t dims) {
      const auto it = tensors.find(name);
      check<DataError>(
          it != tensors.end() && it->second.dtype == dtype && it->second.shape.size() == dims, path,
          ": no `", name, "` as temper distill --precompute writes it");
      return it->second;
    };
    prefix_ = models::to_tensor(tensor("prefix", DType::kInt64, 1), at::kLong).contiguous();
    row_ = models::to_tensor(tensor("row", DType::kInt64, 1), at::kLong).contiguous();
    id_ = models::to_tensor(tensor("id", DType::kInt32, 2), at::kInt);
    logp_ = models::to_tensor(tensor("logp", DType::kFloat32, 2), at::kFloat);
    const int64_t size =
        models::to_tensor(tensor("size", DType::kInt64, 1), at::kLong).sum().item<int64_t>();
    check<DataError>(id_.sizes() == logp_.sizes() && id_.size(0) == prefix_.numel() &&
                         row_.numel() == prefix_.numel(),
                     path, ": `prefix`, `row`, `id` and `logp` are not of one size");
    check<DataError>(!((row_ < 0) | (row_ >= id_.size(0))).any().item<bool>(), path,
                     ": `row` points outside of `id`");
    check<DataError>(id_.size(1) > 0 && at::isfinite(logp_).all().item<bool>(), path,
                     ": `logp` must be finite numbers, at least one a place");
    check<ConfigError>(size == vocabulary, where, ": ", path, " is of another vocabulary: it has ",
                       size, " tokens, the student's ", vocabulary);
    check<ConfigError>(top_k <= id_.size(1), where, ": ", path, " has the teacher's ", id_.size(1),
                       " most likely tokens, distill.top_k asks for ", top_k);
    if (!config.distill.teacher.empty()) {
      const std::string named = canonical(teacher_directory(config));
      const std::string recorded = bytes_of(tensor("teacher", DType::kUInt8, 1));
      check<ConfigError>(recorded == named, where, ": ", path, " holds what ", recorded,
                         " predicts, distill.teacher is ", named,
                         "; leave out one of the two, or write the file anew with --precompute");
    }
    const std::optional<std::string> date = date_of(tensors), &own = config.data.template_date;
    check<ConfigError>(!date || date == own, config.where("data.template_date"), ": found ",
                       own.value_or("none"), ", and the chat template wrote ", date.value_or(""),
                       " when ", path,
                       " was made; leave out the key, or write the file anew with --precompute");
    if (own && !date)
      hint_ = str("; the chat template writes the date, now ", *own,
                  ", and may have written another one then");
    k_ = top_k > 0 ? top_k : id_.size(1);
  }

  void check_has(const train::ForwardPass& pass) const override { rows_of(pass); }

  ops::TopTokens top_tokens(const train::ForwardPass& pass) override {
    const at::Tensor at = at::tensor(rows_of(pass), at::kLong);
    const at::Tensor id = id_.index_select(0, at).narrow(1, 0, k_).to(at::kLong);
    const at::Tensor sorted = std::get<0>(id.sort(1));
    check<DataError>(
        sorted.numel() == 0 ||
            !(sorted.narrow(1, 0, k_ - 1) == sorted.narrow(1, 1, k_ - 1)).any().item<bool>(),
        path_, ": a place has the same token twice");
    return {id, logp_.index_select(0, at).narrow(1, 0, k_)};
  }

 private:
  // Of `id` and `logp`, of each of the pass's targets.
  std::vector<int64_t> rows_of(const train::ForwardPass& pass) const {
    const int64_t* begin = prefix_.const_data_ptr<int64_t>();
    const int64_t* end = begin + prefix_.numel();
    std::vector<int64_t> rows;
    for (const int64_t wanted : prefixes_of(pass)) {
      const int64_t* found = std::lower_bound(begin, end, wanted);
      check<DataError>(found != end && *found == wanted, path_,
                       ": a row's token is not in it; write it anew with temper distill "
                       "--precompute and the same data and model keys",
                       hint_);
      rows.push_back(row_.const_data_ptr<int64_t>()[found - begin]);
    }
    return rows;
  }

  std::string path_, hint_;
  at::Tensor prefix_, row_, id_, logp_;
  int64_t k_ = 0;
};

}  // namespace

std::vector<int64_t> prefixes_of(const train::ForwardPass& pass) {
  const Forest& f = *pass.forest;
  std::vector<uint64_t> hash(f.tokens.size());  // hash of the path up to and with each token
  auto rows = f.rows.begin();                   // the first that begin at the token or behind it
  for (size_t s = 0; s < f.parent.size(); ++s) {
    uint64_t last =
        f.parent[s] < 0
            ? 0
            : hash[static_cast<size_t>(f.segment_start[static_cast<size_t>(f.parent[s]) + 1] - 1)];
    for (int64_t t = f.segment_start[s]; t < f.segment_start[s + 1]; ++t) {
      if (rows != f.rows.end() && rows->begin == t) {
        for (const int64_t n : {rows->first, rows->count})
          last = mixed(last, static_cast<int32_t>(n));
        for (const char c : (rows++)->digest) last = mixed(last, c);
      }
      hash[static_cast<size_t>(t)] = last = mixed(last, f.tokens[static_cast<size_t>(t)]);
    }
  }
  std::vector<int64_t> prefixes;
  for (const int64_t row : pass.row_M)
    prefixes.push_back(static_cast<int64_t>(hash[static_cast<size_t>(row)]));
  return prefixes;
}

TeacherFileWriter::TeacherFileWriter(const std::string& teacher, int64_t vocabulary, int64_t k,
                                     std::optional<std::string> date)
    : teacher_(canonical(teacher)),
      date_(std::move(date)),
      vocabulary_(vocabulary),
      k_(k),
      id_(open_temporary("temper-teacher")),
      logp_(open_temporary("temper-teacher")) {}

void TeacherFileWriter::add(const train::ForwardPass& pass, const ops::TopTokens& top) {
  const std::vector<int64_t> prefixes = prefixes_of(pass);
  std::vector<int32_t> id;
  std::vector<float> logp;
  for (size_t i = 0; i < prefixes.size(); ++i) {
    if (!row_of_.emplace(prefixes[i], predictions()).second) continue;
    for (size_t j = i * static_cast<size_t>(k_); j < (i + 1) * static_cast<size_t>(k_); ++j) {
      id.push_back(static_cast<int32_t>(top.id.const_data_ptr<int64_t>()[j]));
      logp.push_back(top.logit.const_data_ptr<float>()[j]);
    }
  }
  const std::string what = temporary_directory() + ": the teacher's predictions";
  write_all(id_.get(), id.data(), id.size() * sizeof(int32_t), what);
  write_all(logp_.get(), logp.data(), logp.size() * sizeof(float), what);
}

void TeacherFileWriter::write(const std::string& path) const {
  std::vector<std::pair<int64_t, int64_t>> order(row_of_.begin(), row_of_.end());
  std::sort(order.begin(), order.end());
  std::vector<int64_t> prefix, row;
  for (const auto& [hash, place] : order) {
    prefix.push_back(hash);
    row.push_back(place);
  }
  const auto mapped = [&](const FileDescriptor& file, DType dtype) -> TensorView {
    const auto bytes = MappedFile::open(str("/proc/self/fd/", file.get()));
    return {dtype, {predictions(), k_}, bytes->data(), bytes->size(), bytes};
  };
  TensorMap tensors{{"prefix", models::to_view(at::tensor(prefix, at::kLong))},
                    {"row", models::to_view(at::tensor(row, at::kLong))},
                    {"id", mapped(id_, DType::kInt32)},
                    {"logp", mapped(logp_, DType::kFloat32)},
                    {"size", models::to_view(at::full({1}, vocabulary_, at::kLong))},
                    {"teacher", bytes_view(teacher_)}};
  if (date_) tensors["date"] = bytes_view(*date_);
  write_safetensors(path, tensors);
}

std::optional<std::string> teacher_file_date(const std::string& path) {
  return date_of(read_safetensors(path));
}

void take_file_date(DistillConfig& config) {
  const std::optional<std::string>& file = config.distill.teacher_logprobs;
  if (file && !config.data.template_date) config.data.template_date = teacher_file_date(*file);
}

std::unique_ptr<RemoteTeacher> open_teacher_file(const DistillConfig& config, int64_t vocabulary) {
  return std::make_unique<TeacherFile>(config, vocabulary);
}

}  // namespace temper::distill
