#include "temper/tinker/digest.h"

#include <xxhash.h>

#include <memory>
#include <variant>
#include <vector>

namespace temper::tinker {
namespace {

class Digest {
 public:
  Digest() : state_(XXH3_createState(), &XXH3_freeState) { XXH3_128bits_reset(state_.get()); }
  Digest& add(std::string_view text) {
    const uint64_t size = text.size();
    XXH3_128bits_update(state_.get(), &size, sizeof size);
    XXH3_128bits_update(state_.get(), text.data(), text.size());
    return *this;
  }
  template <class T>
  Digest& add_all(const std::vector<T>& values) {
    return add({reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)});
  }
  std::string text() const {
    const XXH128_hash_t hash = XXH3_128bits_digest(state_.get());
    return std::to_string(hash.high64) + ":" + std::to_string(hash.low64);
  }

 private:
  std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state_;
};

}  // namespace

std::string digest_of(std::string_view route, const Json& body) {
  return Digest().add(route).add(dump_json(body)).text();
}

std::string digest_of(const ForwardBackwardRequest& request) {
  Digest digest;
  digest.add(request.loss_fn).add(request.forward_only ? "forward" : "both");
  for (const auto& [key, value] : request.config) {
    digest.add(key);
    if (const double* const number = std::get_if<double>(&value))
      digest.add({reinterpret_cast<const char*>(number), sizeof *number});
    else
      digest.add(std::get<std::string>(value));
  }
  for (const WireDatum& datum : request.data) {
    digest.add_all(datum.tokens);
    for (const WireImage& image : datum.images)
      digest.add(std::to_string(image.at)).add(image.source.bytes);
    for (const auto& [key, tensor] : datum.inputs)
      digest.add(key)
          .add_all(tensor.shape)
          .add_all(tensor.values)
          .add_all(tensor.integers)
          .add_all(tensor.crow)
          .add_all(tensor.columns);
  }
  return digest.text();
}

}  // namespace temper::tinker
