#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <unistd.h>

#include <filesystem>
#include <ostream>

#include "temper/base/error.h"
#include "temper/distill/reading.h"
#include "temper/distill/run.h"
#include "temper/distill/teacher_file.h"
#include "temper/train/roles/blind_models.h"

namespace temper::distill {
namespace {

constexpr int64_t kUsualTopK = 64;

}  // namespace

void precompute_teacher(DistillConfig& config, std::ostream& console) {
  config.require(config.distill.teacher_logprobs.has_value(), "distill.teacher_logprobs",
                 "expected the file that --precompute writes");
  config.require(!config.distill.teacher.empty(), "distill.teacher",
                 "expected the directory of the model whose log-probabilities to write");
  config.require(!config.distill.asks_servers(), "distill.teacher",
                 "found a url, expected a directory: the teacher is read in this process");
  config.require(!config.samples(), "distill.strategy",
                 "expected logit: what the student will sample is not known before");
  config.require(!config.crosses(), "distill.cross_tokenizer",
                 "expected null: a file has numbers of the student's own tokens");
  const std::string path = *config.distill.teacher_logprobs;
  const std::filesystem::path folder = std::filesystem::absolute(path).parent_path();
  config.require(::access(folder.c_str(), W_OK) == 0, "distill.teacher_logprobs",
                 "cannot write to ", folder.string());
  train::Roles roles(config);  // its tokenizer and template make the rows
  const Teachers teachers(config, roles);
  models::CausalLM& teacher = teachers.model(0);
  const int64_t k =
      std::min(config.distill.top_k > 0 ? config.distill.top_k : kUsualTopK, teacher.vocab_size);
  TeacherFileWriter file(teacher_directory(config), teacher.vocab_size, k,
                         config.data.template_date);
  const at::NoGradGuard no_grad;
  train::ForwardPass pass;
  const auto flush = [&] {
    if (!pass.target_M.empty()) {
      const Side side(teacher, {.forest = pass.forest, .rows = pass.rows()}, Tap::kNone, {});
      const ops::TopTokens top = ops::top_tokens(head_at_targets(side, pass), k);
      file.add(pass, {top.id.to(at::kCPU), top.logit.to(at::kCPU)});
    }
    pass = train::ForwardPass();
  };
  data::SftFormat format = train::sft_format(config, roles.policy);
  format.groups = nullptr;
  train::VerbRows<data::SftRow> rows = train::sft_rows(config, format);
  train::refuse_unseen(
      rows, train::blind_model(config, "distill.teacher", config.distill.teacher.at(0).path));
  std::vector<data::SourceSpec> sources = rows.training_sources(config);
  const size_t trained = sources.size();
  for (const data::SourceSpec& source : rows.evaluation_sources(config)) sources.push_back(source);
  std::vector<std::unique_ptr<data::RowSet>> sets;  // the readers know them by their addresses
  for (size_t s = 0; s < sources.size(); ++s) {
    const data::RowSet& set = *sets.emplace_back(std::make_unique<data::RowSet>(sources[s]));
    for (int64_t r = 0; r < set.size(); ++r) {
      const auto row = data::read_one(s < trained ? rows.train : rows.evaluation, set, r);
      if (!row) continue;
      if (pass.forest->num_tokens() + row->num_computed() > config.train.micro_batch_tokens)
        flush();
      pass.add(train::unit_of(*row), 0);
    }
  }
  flush();
  file.write(path);
  console << path << ": the teacher's " << k << " most likely tokens at " << file.predictions()
          << " positions\n";
}

}  // namespace temper::distill
