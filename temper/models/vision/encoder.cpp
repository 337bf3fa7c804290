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

void Encoder::set_adapted(bool adapted) {
  const std::lock_guard lock(mutex_);
  adapted_ = adapted;
}

void Encoder::forget(std::map<std::string, Known>::iterator image) {
  statistics_.bytes -= bytes_of(image->second.features);
  order_.erase(image->second.place);
  known_.erase(image);
}

Tower& Encoder::loaded() {
  if (!tower_) tower_ = load_();
  return *tower_;
}

Tower& Encoder::tower() {
  const std::lock_guard lock(mutex_);
  return loaded();
}

// Weights of the language model change, too, and, on other threads, copies of its adapters.
uint64_t Encoder::version(int adapter) {
  if (const uint64_t changes = loaded().changes(); changes != changes_) {
    changes_ = changes;
    versions_.clear();
  }
  const auto [found, is_new] = versions_.try_emplace(adapter, 0);
  if (!is_new) return found->second;
  if (adapter > 0) return found->second = changes_;  // whose parameters are not the tower's
  tower_->each_parameter(
      [&](const std::string&, nn::Parameter& p) { found->second += p.updates(); });
  return found->second;
}

const Encoder::Known& Encoder::find(const std::string& digest, int adapter,
                                    const std::function<ImagePixels()>& pixels) {
  check(!digest.empty(), "an image without a digest");
  const std::string key = adapter == 0 ? digest : str(digest, "/", adapter);
  const uint64_t now = version(adapter);
  auto known = known_.find(key);
  if (known != known_.end() && known->second.version != now) {
    check(!known->second.features.rows.grad().defined(), "a tower's weights changed within a step");
    forget(known);
    known = known_.end();
  }
  if (known != known_.end()) {
    order_.splice(order_.end(), order_, known->second.place);
    ++statistics_.reused;
  } else {
    Known image;
    {
      const at::NoGradGuard no_grad;
      image.features = tower_->forward(pixels(), adapter);
    }
    check<DataError>(at::isfinite(image.features.rows).all().item<bool>(),
                     "the vision tower gives NaN or infinity for an image");
    ++statistics_.computed;
    statistics_.bytes += bytes_of(image.features);
    image.adapter = adapter;
    image.version = now;
    if (trains_) image.pixels = pixels;
    image.place = order_.insert(order_.end(), key);
    known = known_.emplace(key, std::move(image)).first;
    while (!in_step_ && statistics_.bytes > cache_bytes_ && order_.size() > 1) forget_oldest();
  }
  if (Known& image = known->second; in_step_ && !image.leaf) {
    image.leaf = true;
    image.features.rows = leaf_of(image.features.rows);
    if (image.features.deep.defined()) image.features.deep = leaf_of(image.features.deep);
  }
  return known->second;
}

ExternalRows Encoder::rows(const PlacedImage& image) {
  const std::lock_guard lock(mutex_);
  const ImageFeatures& features = find(image.digest, image.adapter, image.pixels).features;
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

std::shared_ptr<const Forest> Encoder::with_features(const nn::Context& context) {
  const std::shared_ptr<const Forest>& forest = context.forest;
  const auto adapter_at = [&](int64_t token) {
    for (const nn::AdapterRows& range : context.adapter_rows)
      if (token < range.end) return range.adapter;
    return context.adapter;
  };
  std::shared_ptr<Forest> filled;
  for (size_t i = 0; i < forest->rows.size(); ++i) {
    const ExternalRows& r = forest->rows[i];
    if (r.features.defined()) continue;
    const auto* const source = dynamic_cast<const PixelSource*>(r.source.get());
    check(source != nullptr, "external rows without features that are no image");
    const int adapter = adapted_ ? adapter_at(r.begin) : 0;
    ExternalRows with = rows({r.begin, r.count, r.first, r.digest, source->pixels, adapter});
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
  return find(digest, 0, pixels).features.rows.size(0);
}

void Encoder::begin_step() {
  const std::lock_guard lock(mutex_);
  check(trains_ && !in_step_,
        "an encoder's step begins: expected a tower that trains, outside of "
        "a step");
  in_step_ = true;
}

void Encoder::end_step() {
  const std::lock_guard lock(mutex_);
  check(in_step_, "an encoder's step ends that did not begin");
  for (auto& [key, image] : known_) {
    if (!image.leaf) continue;
    const ImageFeatures& leaves = image.features;
    const auto gradient = [](const at::Tensor& leaf) {
      return leaf.defined() ? leaf.grad() : at::Tensor();
    };
    const at::Tensor of_rows = gradient(leaves.rows), of_deep = gradient(leaves.deep);
    if (!of_rows.defined() && !of_deep.defined()) continue;  // nothing that trains read it
    const ImageFeatures again = tower_->forward(image.pixels(), image.adapter);
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
