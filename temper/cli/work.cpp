#include "temper/cli/work.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "temper/base/error.h"
#include "temper/data/row_fields.h"
#include "temper/models/adapter.h"
#include "temper/models/load.h"

namespace temper::cli {

std::unique_ptr<models::CausalLM> load(const ModelFlags& flags) {
  check<ConfigError>(flags.device != "cuda",
                     "--device cuda: this build has no CUDA; use --device cpu");
  auto model =
      models::load_model(flags.model, flags.dtype == "bfloat16" ? at::kBFloat16 : at::kFloat);
  if (!flags.adapter.empty()) models::load_adapter(*model, flags.adapter);
  return model;
}

std::shared_ptr<const Tokenizer> find_tokenizer(const std::string& directory) {
  const std::string path = directory + "/tokenizer.json";
  return std::filesystem::exists(path) ? Tokenizer::load(path) : nullptr;
}

std::vector<int32_t> token_field(const Json& row, const char* field, int64_t vocabulary,
                                 const std::string& where) {
  const auto it = row.find(field);
  check<DataError>(it != row.end(), where, ": no `", field, "`");
  return data::token_ids(*it, field, vocabulary, where);
}

OutputFile::OutputFile(const std::string& path) : path_(path) {
  struct stat found{};
  const bool exists = ::stat(path.c_str(), &found) == 0;
  check<ConfigError>(!exists || !S_ISDIR(found.st_mode), path, ": is a directory");
  if (!exists || S_ISREG(found.st_mode)) {
    std::error_code none;
    if (exists) path_ = std::filesystem::canonical(path, none).string();
    if (none) path_ = path;
    temporary_ = temper::str(path_, ".tmp-", ::getpid());
  }
  file_ = std::fopen((temporary_.empty() ? path_ : temporary_).c_str(), "wbe");
  check<ConfigError>(file_ != nullptr, path, ": cannot write: ", std::strerror(errno));
}
OutputFile::~OutputFile() {
  if (file_) std::fclose(file_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}
void OutputFile::line(const std::string& text) {
  check(std::fwrite(text.data(), 1, text.size(), file_) == text.size() &&
            std::fputc('\n', file_) != EOF,
        path_, ": cannot write: ", std::strerror(errno));
  ++lines_;
}
void OutputFile::close() {
  const bool written = std::fflush(file_) == 0;
  const int why = errno;
  const bool closed = std::fclose(std::exchange(file_, nullptr)) == 0;
  check(written && closed, path_, ": cannot write: ", std::strerror(written ? errno : why));
}
void OutputFile::move_to(const std::string& path) {
  close();
  if (temporary_.empty()) return;
  check(std::rename(temporary_.c_str(), path.c_str()) == 0, path,
        ": cannot write: ", std::strerror(errno));
  temporary_.clear();
}
void OutputFile::finish() { move_to(path_); }
std::string OutputFile::stop() {
  if (lines_ == 0) return "stopped before the first line was whole";
  const std::string kept = temporary_.empty() ? path_ : path_ + ".partial";
  move_to(kept);
  return temper::str("stopped; the first ", lines_, " lines are in ", kept);
}

std::string json_list(const std::vector<int32_t>& values) {
  std::string out = "[";
  for (size_t i = 0; i < values.size(); ++i) out += (i ? "," : "") + std::to_string(values[i]);
  return out + "]";
}
std::string json_list(const std::vector<float>& values) {
  std::string out = "[";
  for (size_t i = 0; i < values.size(); ++i) out += (i ? "," : "") + float_to_json(values[i]);
  return out + "]";
}

}  // namespace temper::cli
