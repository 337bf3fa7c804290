// The requests of ranks that train to ranks with roles of their own, and the answers. All ranks
// have the same config (train::join_ranks), so only what differs from request to request travels.
// The functions that parse throw DataError.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "temper/data/images/image_format.h"
#include "temper/generate/remote/protocol.h"
#include "temper/rewards/reward.h"
#include "temper/train/forward_pass.h"
#include "temper/train/trainer.h"

namespace temper::workers {

// POST: samples of a request with the weights of a version; these weights (kWeights/VERSION, the
// bytes of a safetensors file); reference log-probabilities; verdicts of a reward (kJudge/NAME);
// the end of the run. GET: heartbeats, by which rank 0 (kHeartbeat) and the others that train
// (kWatch) notice a rank's end.
inline constexpr const char *kSample = "/sample", *kWeights = "/weights", *kScore = "/score",
                            *kJudge = "/judge", *kEnd = "/end", *kHeartbeat = "/heartbeat",
                            *kWatch = "/watch";

struct SampleAsk {
  int64_t version = 0;  // number of updates that the policy has made
  generate::Request request;
};
// Images of a request, a pass or a sample travel as their paths, or as their bytes where they have
// none; what parses them knows how the model reads `images` (null: it sees none).
//
// The text has only max_new_tokens and min_new_tokens of the request's options; parse_sample takes
// the others from `options`, those of the config.
std::string sample_text(int64_t version, const generate::Request& request);
SampleAsk parse_sample(const std::string& text, const generate::GenerationOptions& options,
                       const data::ImageFormat* images = nullptr);
// The completions in order of their samples.
std::string completions_text(const std::vector<generate::remote::RemoteSample>& samples);
std::vector<generate::remote::RemoteSample> parse_completions(const std::string& text);

// The pass's log-probabilities at a temperature: its forest and targets. They are answered as raw
// float32.
std::string score_text(const train::ForwardPass& pass, double temperature);
struct ScoreAsk {
  train::ForwardPass pass;
  double temperature = 1;
};
ScoreAsk parse_score(const std::string& text, const data::ImageFormat* images = nullptr);
std::string scores_bytes(const at::Tensor& logp_M);
at::Tensor parse_scores(const std::string& bytes, int64_t count);

// What a reward reads of samples, and its verdicts.
std::string samples_text(std::span<const rewards::Sample> samples);
std::vector<rewards::Sample> parse_samples(const std::string& text,
                                           const data::ImageFormat* images = nullptr);
std::string verdicts_text(std::span<const rewards::Verdict> verdicts);
std::vector<rewards::Verdict> parse_verdicts(const std::string& text, size_t count);

std::string end_text(const train::RunOutcome& outcome);
train::RunOutcome parse_end(const std::string& text);

}  // namespace temper::workers
