#include "temper/models/files/formats/packed.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "temper/base/error.h"
#include "temper/models/files/hf_config.h"
#include "temper/models/files/tensors.h"

namespace temper::models {

MatrixParts::MatrixParts(TensorMap& tensors, std::string module,
                         std::initializer_list<const char*> suffixes, std::string directory)
    : module_(std::move(module)), directory_(std::move(directory)) {
  for (const char* suffix : suffixes) parts_.insert(tensors.extract(module_ + suffix));
}

std::string MatrixParts::place(const std::string& suffix) const {
  return temper::str(directory_, ": `", module_, suffix, "`");
}

const TensorView& MatrixParts::at(const std::string& suffix) const {
  const auto it = parts_.find(module_ + suffix);
  check<DataError>(it != parts_.end(), place(suffix), " is missing; `",
                   parts_.empty() ? module_ : parts_.begin()->first, "` needs it");
  return it->second;
}

const TensorView& MatrixParts::at(const std::string& suffix, DType dtype,
                                  const std::vector<int64_t>& shape) const {
  const TensorView& view = at(suffix);
  if (view.dtype != dtype || view.shape != shape)
    fail(suffix, temper::str(dtype_name(dtype), " ", shape_text(shape)));
  return view;
}

void MatrixParts::fail(const std::string& suffix, const std::string& expected) const {
  const TensorView& view = at(suffix);
  throw DataError(temper::str(place(suffix), " is ", dtype_name(view.dtype), " ",
                              shape_text(view.shape), ", expected ", expected));
}

std::vector<float> MatrixParts::scales(const std::string& suffix, float largest) const {
  const TensorView& view = at(suffix);
  if (view.dtype != DType::kFloat32 && view.dtype != DType::kFloat16 &&
      view.dtype != DType::kBFloat16)
    fail(suffix, "F16, BF16 or F32");
  const at::Tensor values = to_tensor(view, at::kFloat).contiguous();
  const float* from = values.const_data_ptr<float>();
  std::vector<float> out(from, from + values.numel());
  for (const float scale : out)
    check<DataError>(std::isfinite(scale * largest), place(suffix), " holds ", scale,
                     ", with which weights are not finite");
  return out;
}

std::vector<int64_t> MatrixParts::integers(const std::string& suffix, int64_t least,
                                           int64_t most) const {
  const TensorView& view = at(suffix);
  if (view.dtype != DType::kInt32 && view.dtype != DType::kInt64) fail(suffix, "I32 or I64");
  const at::Tensor values = to_tensor(view, at::kLong).contiguous();
  const int64_t* from = values.const_data_ptr<int64_t>();
  std::vector<int64_t> out(from, from + values.numel());
  for (const int64_t value : out)
    check<DataError>(value >= least && value <= most, place(suffix), " holds ", value,
                     ", expected numbers from ", least, " to ", most);
  return out;
}

std::vector<std::string> modules_with(const TensorMap& tensors, const std::string& suffix) {
  std::vector<std::string> modules;
  for (const auto& [name, view] : tensors)
    if (name.ends_with(suffix)) modules.push_back(name.substr(0, name.size() - suffix.size()));
  return modules;
}

std::vector<int32_t> Groups::places(int64_t width) const {
  std::vector<int32_t> places(order.empty() ? 0 : static_cast<size_t>(width));
  for (size_t i = 0; i < places.size(); ++i)
    places[static_cast<size_t>(order[i])] = static_cast<int32_t>(i);
  return places;
}

Groups even_groups(int64_t width, int64_t group) {
  Groups groups{.size = std::gcd(width, std::min(group, width)), .of = {}, .order = {}};
  for (int64_t first = 0; first < width; first += groups.size)
    groups.of.push_back(static_cast<int32_t>(first / group));
  return groups;
}

Groups groups_of(const std::vector<int64_t>& group_of_column) {
  const auto width = static_cast<int64_t>(group_of_column.size());
  std::vector<int32_t> order(group_of_column.size());
  std::iota(order.begin(), order.end(), 0);
  const auto group = [&](int32_t column) { return group_of_column[static_cast<size_t>(column)]; };
  const bool sorted = std::is_sorted(group_of_column.begin(), group_of_column.end());
  if (!sorted)
    std::stable_sort(order.begin(), order.end(),
                     [&](int32_t a, int32_t b) { return group(a) < group(b); });
  Groups groups{.size = width, .of = {}, .order = {}};
  for (int64_t i = 1; i < width; ++i)
    if (group(order[static_cast<size_t>(i)]) != group(order[static_cast<size_t>(i - 1)]))
      groups.size = std::gcd(groups.size, i);
  for (int64_t i = 0; i < width; i += groups.size)
    groups.of.push_back(static_cast<int32_t>(group(order[static_cast<size_t>(i)])));
  if (!sorted) groups.order = std::move(order);
  return groups;
}

UnpackFields unpacker(int64_t bits) {
  switch (bits) {
    case 2:
      return &unpack_fields<2>;
    case 3:
      return &unpack_fields<3>;
    case 4:
      return &unpack_fields<4>;
    case 8:
      return &unpack_fields<8>;
  }
  return nullptr;
}

std::vector<uint8_t> unpack(const PackedRows& packed, const std::vector<int32_t>& places) {
  constexpr int64_t kTile = 16;  // rows whose words lie side by side where next_row is 1
  const UnpackFields take = unpacker(packed.bits);
  const int64_t fields = packed.fields, words = words_of(fields, packed.bits);
  std::vector<uint8_t> out(static_cast<size_t>(packed.rows * fields));
  const auto take_block = [&](int64_t row, int64_t first) {
    std::array<uint32_t, 8> block{};
    const int64_t word = first / 32 * packed.bits, count = std::min(packed.bits, words - word);
    for (int64_t w = 0; w < count; ++w)
      block[static_cast<size_t>(w)] =
          word_at(packed.words, row * packed.next_row + (word + w) * packed.next_word);
    std::array<uint8_t, 32> codes;
    take(block, codes.data());
    uint8_t* to = out.data() + row * fields;
    const int64_t here = std::min<int64_t>(32, fields - first);
    if (places.empty()) return std::copy_n(codes.data(), here, to + first), void();
    for (int64_t i = 0; i < here; ++i)
      to[places[static_cast<size_t>(first + i)]] = codes[static_cast<size_t>(i)];
  };
#pragma omp parallel for schedule(static) if (packed.rows * fields > 32768)
  for (int64_t tile = 0; tile < packed.rows; tile += kTile)
    for (int64_t first = 0; first < fields; first += 32)
      for (int64_t row = tile; row < std::min(tile + kTile, packed.rows); ++row)
        take_block(row, first);
  return out;
}

namespace {

class UnpackedMatrix final : public CodedMatrix {
 public:
  UnpackedMatrix(ops::WeightFormat format, std::function<ops::Codes()> unpack)
      : format_(format), unpack_(std::move(unpack)) {}
  ops::WeightFormat format() const override { return format_; }
  ops::Codes unpacked() const override { return unpack_(); }
  TensorView values() const override { return to_view(ops::read(ops::Weight(codes(at::kCPU)))); }

 private:
  ops::WeightFormat format_;
  std::function<ops::Codes()> unpack_;
};

}  // namespace

TensorView coded_view(ops::WeightFormat format, int64_t rows, int64_t width,
                      std::function<ops::Codes()> unpack) {
  return coded_view(DType::kFloat32, {rows, width},
                    std::make_shared<const UnpackedMatrix>(format, std::move(unpack)));
}

const Json* quantization_of(const HfConfig& config, std::string_view method) {
  const auto found = config.json().find("quantization_config");
  if (found == config.json().end() || !found->is_object()) return nullptr;
  const auto name = found->find("quant_method");
  return name != found->end() && *name == method ? &*found : nullptr;
}

int64_t quantization_integer(const HfConfig& config, const Json& quantization, const char* key,
                             int64_t fallback, int64_t least, int64_t most) {
  const auto it = quantization.find(key);
  if (it == quantization.end() || it->is_null()) return fallback;
  const bool fits = it->is_number_integer() && *it >= least && *it <= most;
  if (!fits)
    config.fail("quantization_config",
                temper::str("`", key, "`: found ", dump_json(*it),
                            ", expected a whole number from ", least, " to ", most));
  return it->get<int64_t>();
}

std::string quantization_text(const Json& quantization, const char* key) {
  const auto it = quantization.find(key);
  if (it == quantization.end() || it->is_null()) return "";
  std::string text = it->is_string() ? it->get<std::string>() : dump_json(*it);
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return c < 128 ? std::tolower(c) : c; });
  return text;
}

}  // namespace temper::models
