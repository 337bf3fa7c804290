// A teacher's likeliest tokens, computed once and trained on later: a safetensors file of
//   prefix  int64 [P], ascending: a hash of the tokens that a prediction follows
//   row     int64 [P]: where its prediction stands in the next two
//   id      int32 [P, k], the likeliest next tokens, likeliest first
//   logp    float32 [P, k], their log-probabilities at temperature 1
// size    int64 [1], the vocabulary's size
//   teacher uint8 [n], the path of the teacher's directory
//   date    uint8 [n], the date that the chat template wrote (template_date.h); absent: none
// A prediction is found by the tokens before it, so that rows may be shuffled, packed, cut and
// mixed anew.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "temper/base/file.h"
#include "temper/distill/teacher.h"

namespace temper::distill {

// For each of the pass's targets the hash of the tokens before it, which are its segment's path.
std::vector<int64_t> prefixes_of(const train::ForwardPass& pass);

// Collects the predictions of a file; the same prefix counts once. They wait in temporary files:
// memory holds 16 bytes of each.
class TeacherFileWriter {
 public:
  // teacher: its directory. date: that of the rows' chat template, if it writes one.
  TeacherFileWriter(const std::string& teacher, int64_t vocabulary, int64_t k,
                    std::optional<std::string> date = {});
  void add(const train::ForwardPass& pass, const ops::TopTokens& top);
  int64_t predictions() const { return static_cast<int64_t>(row_of_.size()); }
  // Throws RunError.
  void write(const std::string& path) const;

 private:
  std::string teacher_;
  std::optional<std::string> date_;
  int64_t vocabulary_, k_;
  std::unordered_map<int64_t, int64_t> row_of_;  // prefix -> row
  FileDescriptor id_, logp_;
};

// The date that the rows' chat template wrote when the file was made; nullopt: it wrote none.
// Throws DataError where the file cannot be read.
std::optional<std::string> teacher_file_date(const std::string& path);

// Where the config names a file, and no date: data.template_date becomes the file's, as rows must
// be rendered as they were for the teacher. Throws DataError where the file cannot be read.
void take_file_date(DistillConfig& config);

// Opens distill.teacher_logprobs. Throws ConfigError for a file of another vocabulary, with fewer
// than distill.top_k tokens (0: all that it has), of another teacher than distill.teacher, where
// that is given too, or of another date than data.template_date.
std::unique_ptr<RemoteTeacher> open_teacher_file(const DistillConfig& config, int64_t vocabulary);

}  // namespace temper::distill
