#include "temper/cli/work.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

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

OutputFile::OutputFile(const std::string& path)
    : path_(path),
      temporary_(temper::str(path, ".tmp-", ::getpid())),
      file_(std::fopen(temporary_.c_str(), "wbe")) {
  check<ConfigError>(file_ != nullptr, path, ": cannot write: ", std::strerror(errno));
}
OutputFile::~OutputFile() {
  if (!file_) return;
  std::fclose(file_);
  ::unlink(temporary_.c_str());
}
void OutputFile::line(const std::string& text) {
  check(std::fwrite(text.data(), 1, text.size(), file_) == text.size() &&
            std::fputc('\n', file_) != EOF,
        path_, ": cannot write: ", std::strerror(errno));
  ++lines_;
}
void OutputFile::move_to(const std::string& path) {
  const bool closed = std::fclose(file_) == 0;
  file_ = nullptr;
  check(closed && std::rename(temporary_.c_str(), path.c_str()) == 0, path,
        ": cannot write: ", std::strerror(errno));
}
void OutputFile::finish() { move_to(path_); }
std::string OutputFile::stop() {
  if (lines_ == 0) return "stopped before the first line was whole";
  move_to(path_ + ".partial");
  return temper::str("stopped; the first ", lines_, " lines are in ", path_, ".partial");
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
