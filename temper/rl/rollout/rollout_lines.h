// Episodes as lines of a rollouts file (JSONL): a run's output, the input of `rl.replay`, and the
// form in which ranks send episodes to each other.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "temper/base/json.h"
#include "temper/data/images/image_format.h"
#include "temper/image/source.h"
#include "temper/rl/episode.h"

namespace temper::rl {

// How a line names an image, as a row's SOURCE.
using NameImage = std::function<std::string(const Image&)>;

// An episode of the group, without a line end. `resumable` adds what a run needs to go on in the
// middle of a batch. `images`: a SOURCE for each image of prompt_tokens and completion_tokens, in
// the order of their image tokens.
std::string to_line(const EpisodeGroup& group, const Episode& episode, bool resumable = false,
                    const NameImage& name = &Image::source);
// The episodes of all groups, a line each, a group's lines together. A line without `images` has
// those of the line before, where that has the same prompt.
std::string to_lines(const std::vector<EpisodeGroup>& groups, bool resumable = false);

// What reads lines needs to know.
struct LineFormat {
  LineFormat(int64_t size, std::shared_ptr<const data::ImageFormat> seen = nullptr,
             std::string of_file = {})
      : vocabulary(size), images(std::move(seen)), directory(std::move(of_file)) {}

  int64_t vocabulary;
  std::shared_ptr<const data::ImageFormat> images;  // null: the model sees none
  std::string directory;                            // of the file: images' paths are relative to it
};

// What every line must have, whatever the model.
struct LineHead {
  int64_t group = 0;
  std::vector<int32_t> prompt, completion;  // token ids; neither is empty
  std::vector<bool> sampled;                // [completion]: by the policy; at least one is
  double reward = 0;                        // from -1e38 to 1e38
};
// vocabulary: ids are from 0 to vocabulary - 1. where: the file and line, which errors begin with.
// Throws DataError.
LineHead read_head(const Json& row, int64_t vocabulary, const std::string& where);

// Adds what to_lines wrote, or another program's line, to the groups: to the last one where its
// `group` is the same. group, prompt_tokens, completion_tokens and reward are enough. Ids are
// checked against the vocabulary. Throws DataError.
void add_line(std::vector<EpisodeGroup>& groups, const Json& row, const LineFormat& format,
              const std::string& where);
// Adds many lines, as add_line does.
void add_lines(std::vector<EpisodeGroup>& groups, const std::string& lines,
               const LineFormat& format, const std::string& where);

}  // namespace temper::rl
