// From images to the rows that a language model reads in place of their placeholders' tokens.
// Model::forward asks its encoder (Model::vision) for the features of rows that external_rows()
// (image_rows.h) made; rows with features from the start are those of rows():
//
//   models::Encoder encoder(models::load_tower(directory, storage));
//   request.rows = {encoder.rows({.begin = 7, .count = 64, .digest = digest, .pixels = process})};
//
// An image's features stay in memory, by digest, up to a limit, until the tower's weights change,
// and `pixels` is called only where they are not there. Of a tower that trains, rows() gives leaves
// between begin_step() and end_step(), whose gradients the step's passes add up; end_step() then
// runs the tower's own backward pass, image by image, and reads their pixels again for it.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "temper/models/vision/tower.h"
#include "temper/nn/context.h"
#include "temper/ops/forest.h"

namespace temper::models {

// A run of tokens that stand for an image, or for a part of it.
struct PlacedImage {
  int64_t begin = 0, count = 0;  // the tokens [begin, begin + count) of a sequence
  int64_t first = 0;             // token begin + i is the image's token first + i
  // Of the image's bytes and of what the processor was told: equal digests have equal pixels.
  std::string digest;
  std::function<ImagePixels()> pixels;  // of a tower that trains called later, too
  int adapter = 0;                      // nn::Context::adapter
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
  // The context's forest with the features, under its adapters, of rows that lack them and have a
  // PixelSource. Throws DataError, as above, where an image has other tokens than its rows.
  std::shared_ptr<const Forest> with_features(const nn::Context& context);
  // How many tokens stand for the image. Computes it.
  int64_t tokens(const std::string& digest, const std::function<ImagePixels()>& pixels);

  // Whether its steps give gradients to the tower's parameters, of which some train.
  bool trains() const { return trains_; }
  void set_trains(bool trains);
  // Whether layers of the tower have adapters: else features are the same under all of them.
  void set_adapted(bool adapted);
  // Around a step's passes, of a tower that trains; the gradients of the tower's parameters are
  // those of all its rows together. Images are taken in the order of their digests.
  // abandon_step() drops what the step has.
  void begin_step();
  void end_step();
  void abandon_step();

  // Loads it where that was not done.
  Tower& tower();
  // Whether the tower's modules are a model's (Model::take_tower), which then outlives it.
  bool is_taken() const { return taken_; }
  void set_taken() { taken_ = true; }
  struct Statistics {
    int64_t computed = 0, reused = 0;  // images
    int64_t bytes = 0;                 // of the features that are kept
  };
  Statistics statistics() const;

 private:
  struct Known {
    ImageFeatures features;  // of a step, where `leaf`: leaves
    bool leaf = false;
    int adapter = 0;
    uint64_t version = 0;
    std::function<ImagePixels()> pixels;  // of a tower that trains
    std::list<std::string>::iterator place;
  };
  const Known& find(const std::string& digest, int adapter,
                    const std::function<ImagePixels()>& pixels);
  Tower& loaded();
  uint64_t version(int adapter);
  void forget(std::map<std::string, Known>::iterator image);
  void forget_oldest() { forget(known_.find(order_.front())); }

  std::function<std::unique_ptr<Tower>()> load_;
  std::unique_ptr<Tower> tower_;
  int64_t cache_bytes_;
  bool trains_ = false, adapted_ = false, in_step_ = false, taken_ = false;
  uint64_t changes_ = 0;              // of the tower's model, when versions_ were counted
  std::map<int, uint64_t> versions_;  // of the tower's weights under an adapter
  mutable std::mutex mutex_;
  std::map<std::string, Known> known_;
  std::list<std::string> order_;  // least recently used first
  Statistics statistics_;
};

}  // namespace temper::models
