#include "temper/models/vision/encoder.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include "temper/base/error.h"

namespace temper::models {
namespace {

int64_t bytes_of(const ImageFeatures& f) {
  return static_cast<int64_t>(f.rows.nbytes() + (f.deep.defined() ? f.deep.nbytes() : 0));
}

at::Tensor leaf_of(const at::Tensor& x) { return x.detach().requires_grad_(); }

}  // namespace

Encoder::Encoder(std::unique_ptr<Tower> tower, int64_t cache_bytes)
    : tower_(std::move(tower)), cache_bytes_(cache_bytes) {
  check(tower_ != nullptr, "an encoder without a tower");
}

Encoder::Encoder(std::function<std::unique_ptr<Tower>()> load, int64_t cache_bytes)
    : load_(std::move(load)), cache_bytes_(cache_bytes) {}

void Encoder::set_trains(bool trains) {
  const std::lock_guard lock(mutex_);
  check(!in_step_, "an encoder in a step");
  trains_ = trains;
}

void Encoder::forget_oldest() {
  const auto oldest = known_.find(order_.front());
  statistics_.bytes -= bytes_of(oldest->second.features);
  known_.erase(oldest);
  order_.pop_front();
}

const Encoder::Known& Encoder::find(const std::string& digest,
                                    const std::function<ImagePixels()>& pixels) {
  check(!digest.empty(), "an image without a digest");
  if (!tower_) tower_ = load_();
  if (changes_ != tower_->changes()) {
    check(!in_step_, "a tower's weights changed within a step");
    while (!order_.empty()) forget_oldest();
    changes_ = tower_->changes();
  }
  if (const auto found = known_.find(digest); found != known_.end()) {
    order_.splice(order_.end(), order_, found->second.place);
    ++statistics_.reused;
    return found->second;
  }
  Known image;
  image.pixels = pixels();
  {
    const at::NoGradGuard no_grad;
    image.features = tower_->forward(image.pixels);
  }
  check<DataError>(at::isfinite(image.features.rows).all().item<bool>(),
                   "the vision tower gives NaN or infinity for an image");
  ++statistics_.computed;
  statistics_.bytes += bytes_of(image.features);
  if (in_step_) {
    image.features.rows = leaf_of(image.features.rows);
    if (image.features.deep.defined()) image.features.deep = leaf_of(image.features.deep);
  } else {
    image.pixels = {};
  }
  image.place = order_.insert(order_.end(), digest);
  const Known& known = known_[digest] = std::move(image);
  while (!in_step_ && statistics_.bytes > cache_bytes_ && order_.size() > 1) forget_oldest();
  return known;
}

ExternalRows Encoder::rows(const PlacedImage& image) {
  const std::lock_guard lock(mutex_);
  const ImageFeatures& features = find(image.digest, image.pixels).features;
  check<DataError>(
      image.first >= 0 && image.count > 0 && image.count <= features.rows.size(0) - image.first,
      "an image's tokens ", image.first, " to ", image.first + image.count, ", and it has ",
      features.rows.size(0));
  ExternalRows rows{image.begin, image.count, features.rows, image.first, image.digest};
  rows.deep = features.deep;
  rows.grid_rows = features.grid_rows;
  rows.grid_columns = features.grid_columns;
  rows.open = features.open;
  return rows;
}

std::shared_ptr<const Forest> Encoder::with_features(std::shared_ptr<const Forest> forest) {
  std::shared_ptr<Forest> filled;
  for (size_t i = 0; i < forest->rows.size(); ++i) {
    const ExternalRows& r = forest->rows[i];
    if (r.features.defined()) continue;
    const auto* const source = dynamic_cast<const PixelSource*>(r.source.get());
    check(source != nullptr, "external rows without features that are no image");
    ExternalRows with = rows({r.begin, r.count, r.first, r.digest, source->pixels});
    check<DataError>(
        with.open == r.open && with.grid_rows == r.grid_rows && with.grid_columns == r.grid_columns,
        "an image of a grid of ", r.grid_rows, " by ", r.grid_columns,
        " tokens, and the tower gives ", with.grid_rows, " by ", with.grid_columns);
    if (!filled) filled = std::make_shared<Forest>(*forest);
    filled->rows[i] = std::move(with);
  }
  return filled ? filled : forest;
}

int64_t Encoder::tokens(const std::string& digest, const std::function<ImagePixels()>& pixels) {
  const std::lock_guard lock(mutex_);
  return find(digest, pixels).features.rows.size(0);
}

void Encoder::begin_step() {
  const std::lock_guard lock(mutex_);
  check(trains_ && !in_step_,
        "an encoder's step begins: expected a tower that trains, outside of "
        "a step");
  while (!order_.empty()) forget_oldest();
  changes_ = tower_->changes();
  in_step_ = true;
}

void Encoder::end_step() {
  const std::lock_guard lock(mutex_);
  check(in_step_, "an encoder's step ends that did not begin");
  for (auto& [digest, image] : known_) {
    const ImageFeatures& leaves = image.features;
    const auto gradient = [](const at::Tensor& leaf) {
      return leaf.defined() ? leaf.grad() : at::Tensor();
    };
    const at::Tensor of_rows = gradient(leaves.rows), of_deep = gradient(leaves.deep);
    if (!of_rows.defined() && !of_deep.defined()) continue;  // nothing that trains read it
    const ImageFeatures again = tower_->forward(image.pixels);
    std::vector<at::Tensor> outputs, gradients;
    const auto add = [&](const at::Tensor& output, const at::Tensor& g) {
      if (!g.defined() || !output.requires_grad()) return;
      outputs.push_back(output);
      gradients.push_back(g);
    };
    add(again.rows, of_rows);
    if (again.deep.defined()) add(again.deep, of_deep);
    if (!outputs.empty()) torch::autograd::backward(outputs, gradients);
  }
  while (!order_.empty()) forget_oldest();
  in_step_ = false;
}

void Encoder::abandon_step() {
  const std::lock_guard lock(mutex_);
  while (!order_.empty()) forget_oldest();
  in_step_ = false;
}

Encoder::Statistics Encoder::statistics() const {
  const std::lock_guard lock(mutex_);
  return statistics_;
}

}  // namespace temper::models
