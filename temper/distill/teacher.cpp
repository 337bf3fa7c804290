#include "temper/distill/teacher.h"

#include <algorithm>

#include "temper/base/error.h"
#include "temper/distill/teacher_server.h"
#include "temper/io/gguf.h"
#include "temper/io/weight_files.h"
#include "temper/models/family.h"
#include "temper/models/files/directory.h"
#include "temper/text/tokens.h"

namespace temper::distill {

namespace {

// distill.teacher_dtype; auto is bfloat16 where the files hold no more, which loses nothing, else
// float32, and what they hold quantized stays so.
models::Storage teacher_storage(const DistillSection& section, const std::string& directory) {
  using Dtype = DistillSection::TeacherDtype;
  if (section.teacher_dtype == Dtype::kBfloat16) return {ops::WeightFormat::kBFloat16};
  if (section.teacher_dtype == Dtype::kFloat32) return {ops::WeightFormat::kFloat32};
  const GgufFile gguf = is_gguf_file(directory) ? read_gguf_model(directory) : GgufFile();
  const TensorMap tensors = is_gguf_file(directory) ? gguf.tensors : read_weights(directory);
  // Values of a GGUF file's blocks that no matrix can keep are float32.
  const bool bfloat16 =
      gguf.blocks.empty() && std::all_of(tensors.begin(), tensors.end(), [](const auto& tensor) {
        return tensor.second.shape.size() < 2 || tensor.second.dtype == DType::kBFloat16;
      });
  return {.weights = bfloat16 ? ops::WeightFormat::kBFloat16 : ops::WeightFormat::kFloat32,
          .file = true};
}

// Ids must mean the same to both: a probability is a token's.
void check_vocabulary(const DistillConfig& config, const train::Policy& policy,
                      const std::string& directory) {
  const int64_t own = policy.model->vocab_size, teacher_tokens = models::vocabulary_of(directory);
  const auto differ = [&](const std::string& how) {
    config.fail(
        "distill.teacher",
        str("the teacher's vocabulary is another one: ", how,
            "; distill.cross_tokenizer: gold compares the two by their text",
            config.distill.cross_tokenizer ? ", under distill.strategy: logit or on_policy alone"
                                           : ""));
  };
  if (own != teacher_tokens) differ(str("it has ", teacher_tokens, " tokens, the student's ", own));
  const std::shared_ptr<const Tokenizer> student = policy.tokenizer,
                                         teacher = Tokenizer::load_directory(directory);
  if (!student || !teacher) return;  // rows of ids
  if (const auto id = first_difference(*student, *teacher))
    differ(str("token ", *id, " is `", teacher->token_of(*id), "`, the student's `",
               student->token_of(*id), "`"));
}

}  // namespace

std::vector<train::FrozenSource> teacher_sources(const DistillConfig& config,
                                                 const train::Policy& policy) {
  std::vector<train::FrozenSource> sources;
  for (const TeacherSection& teacher : config.distill.teacher) {
    if (teacher.url) continue;
    const std::string directory =
        models::named_model(teacher.path, config.where("distill.teacher"));
    if (!config.crosses()) check_vocabulary(config, policy, directory);
    sources.push_back(
        {train::FrozenSource::Kind::kModel, directory, teacher_storage(config.distill, directory)});
  }
  return sources;
}

std::string teacher_directory(const DistillConfig& config) {
  return models::named_model(config.distill.teacher.at(0).path, config.where("distill.teacher"));
}

Teachers::Teachers(const DistillConfig& config, train::Roles& roles) {
  const std::vector<train::FrozenSource> sources = teacher_sources(config, roles.policy);
  auto source = sources.begin();
  for (const TeacherSection& teacher : config.distill.teacher) {
    remotes_.push_back(teacher.url ? open_teacher_server(config, teacher, roles.policy) : nullptr);
    if (teacher.url) {
      models_.push_back(nullptr);
      continue;
    }
    std::unique_ptr<train::Frozen> loaded = (source++)->load(roles.policy);
    models_.push_back(loaded->model());
    if (!roles.teacher) {
      roles.teacher = std::move(loaded);
      continue;
    }
    roles.others.push_back(loaded->model());
    others_.push_back(std::move(loaded));
  }
}

}  // namespace temper::distill
