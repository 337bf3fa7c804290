// The episodes that an agent's session is trained on.
#pragma once

#include <memory>
#include <vector>

#include "temper/rl/episodes/episode_sampler.h"
#include "temper/serve/sessions/session.h"
#include "temper/text/tokenizer/tokenizer.h"

namespace temper::rl {

// A completion for each last turn of the session's tree: the turns from the beginning of its
// conversation to that one. A turn that several of them share trains in the first, and is context
// in the others, so that each sampled token trains once. Their order depends on what was asked and
// sampled alone. Empty where no turn is done.
std::vector<SampledEpisode> episodes_of(const serve::Session::Record& record,
                                        const Tokenizer& tokenizer);

}  // namespace temper::rl
