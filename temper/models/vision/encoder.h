// From images to the rows that a language model reads in place of their placeholders' tokens.
// Model::forward asks its encoder (Model::vision) for the features of rows that external_rows()
// (image_rows.h) made; rows with features from the start are those of rows():
//
//   models::Encoder encoder(models::load_tower(directory, storage));
//   request.rows = {encoder.rows({.begin = 7, .count = 64, .digest = digest, .pixels = process})};
//
// A frozen tower computes an image once: its features stay in memory, by digest, up to a limit, and
// `pixels` is called only where they are not there. A tower that trains computes an image once a
// step: between begin_step() and end_step() rows() gives leaves, whose gradients the step's passes
// add up; end_step() then runs the tower's own backward pass, image by image.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "temper/models/vision/tower.h"
#include "temper/ops/forest.h"

namespace temper::models {

// A run of tokens that stand for an image, or for a part of it.
struct PlacedImage {
  int64_t begin = 0, count = 0;  // the tokens [begin, begin + count) of a sequence
  int64_t first = 0;             // token begin + i is the image's token first + i
  // Of the image's bytes and of what the processor was told: equal digests have equal pixels.
  std::string digest;
  std::function<ImagePixels()> pixels;
};

// An image whose features the model that reads it computes (ExternalRows::source).
struct PixelSource : ExternalSource {
  explicit PixelSource(std::function<ImagePixels()> f) : pixels(std::move(f)) {}
  const std::function<ImagePixels()> pixels;
};

class Encoder {
 public:
  static constexpr int64_t kUsualBytes = int64_t{1} << 30;
  // cache_bytes: of features of a frozen tower that are kept. What is in use is kept beyond that.
  explicit Encoder(std::unique_ptr<Tower> tower, int64_t cache_bytes = kUsualBytes);
  // Of a frozen tower that is loaded with the first image.
  explicit Encoder(std::function<std::unique_ptr<Tower>()> load, int64_t cache_bytes = kUsualBytes);

  // Throws DataError where the image has fewer tokens, and what `pixels` throws. From any thread;
  // one image is computed at a time.
  ExternalRows rows(const PlacedImage& image);
  // The forest with the features of its rows that lack them and have a PixelSource. Throws
  // DataError, as above, where an image has other tokens than its rows.
  std::shared_ptr<const Forest> with_features(std::shared_ptr<const Forest> forest);
  // How many tokens stand for the image. Computes it.
  int64_t tokens(const std::string& digest, const std::function<ImagePixels()>& pixels);

  // Whether any of the tower's parameters trains.
  bool trains() const { return trains_; }
  void set_trains(bool trains);
  // Around a step's passes, of a tower that trains; the gradients of the tower's parameters are
  // those of all its rows together. They do not depend on how a step is split into passes: images
  // are taken in the order of their digests. abandon_step() drops what the step has.
  void begin_step();
  void end_step();
  void abandon_step();

  // Loaded already.
  Tower& tower() { return *tower_; }
  struct Statistics {
    int64_t computed = 0, reused = 0;  // images
    int64_t bytes = 0;                 // of the features that are kept
  };
  Statistics statistics() const;

 private:
  struct Known {
    ImageFeatures features;
    ImagePixels pixels;  // of a step of a tower that trains
    std::list<std::string>::iterator place;
  };
  const Known& find(const std::string& digest, const std::function<ImagePixels()>& pixels);
  void forget_oldest();

  std::function<std::unique_ptr<Tower>()> load_;
  std::unique_ptr<Tower> tower_;
  int64_t cache_bytes_;
  bool trains_ = false, in_step_ = false;
  uint64_t changes_ = 0;  // of the tower, when the first of the known images was computed
  mutable std::mutex mutex_;
  std::map<std::string, Known> known_;
  std::list<std::string> order_;  // least recently used first
  Statistics statistics_;
};

}  // namespace temper::models
