#include <algorithm>
#include <bit>
#include <cstring>
#include <protozero/pbf_message.hpp>

#include "temper/base/error.h"
#include "temper/tinker/wire.h"

static_assert(std::endian::native == std::endian::little,
              "tensors are sent in little-endian order");

namespace temper::tinker {
namespace {

enum DType : int32_t { kFloat32 = 1, kInt64 = 2, kInt32 = 3, kBFloat16 = 4 };
constexpr size_t kMostDimensions = 8;
constexpr size_t kMostInputs = 64;  // of a datum, and keys of a loss's configuration
// Of a request: each takes many times the bytes that an empty one has in a message.
constexpr size_t kMostData = size_t{1} << 16, kMostTensors = size_t{1} << 18;

using protozero::pbf_reader;

// The library's own functions take a field for what they are asked for, whatever it is.
void need(const pbf_reader& message, protozero::pbf_wire_type type) {
  check<DataError>(message.wire_type() == type, "field ", message.tag(),
                   " of a message is of another type than the protocol's");
}
std::string_view bytes_of(pbf_reader& message) {
  need(message, protozero::pbf_wire_type::length_delimited);
  const protozero::data_view view = message.get_view();
  return {view.data(), view.size()};
}
pbf_reader message_of(pbf_reader& message) {
  need(message, protozero::pbf_wire_type::length_delimited);
  return message.get_message();
}
std::string text_of(pbf_reader& message) { return std::string(bytes_of(message)); }
double double_of(pbf_reader& message) {
  need(message, protozero::pbf_wire_type::fixed64);
  return message.get_double();
}
int64_t integer_of(pbf_reader& message) {
  need(message, protozero::pbf_wire_type::varint);
  return message.get_int64();
}

// Whole elements of T, as a vector of To.
template <class T, class To>
std::vector<To> elements(std::string_view bytes, const char* what) {
  check<DataError>(bytes.size() % sizeof(T) == 0, what, ": found ", bytes.size(),
                   " bytes, expected a multiple of ", sizeof(T));
  std::vector<To> out(bytes.size() / sizeof(T));
  for (size_t i = 0; i < out.size(); ++i) {
    T value;
    std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
    out[i] = static_cast<To>(value);
  }
  return out;
}

// Of `format` nothing is read: the bytes say what they are.
WireImage read_image(pbf_reader message) {
  WireImage image;
  while (message.next()) switch (message.tag()) {
      case 1:
        image.source.bytes = text_of(message);
        break;
      case 3:
        image.expected_tokens = integer_of(message);
        break;
      case 4:
        check<DataError>(false,
                         "model_input: override_dimensions of an image is not offered; resize the "
                         "image itself");
        break;
      default:
        message.skip();
    }
  check<DataError>(!image.source.bytes.empty(), "model_input: an image without data");
  return image;
}

void read_chunk(pbf_reader chunk, WireDatum& datum) {
  std::vector<int32_t>& tokens = datum.tokens;
  while (chunk.next()) {
    if (chunk.tag() == 2) {
      datum.images.push_back(read_image(message_of(chunk)));
      datum.images.back().at = tokens.size();
      check<DataError>(datum.images.size() <= kMostImages, "model_input: more than ", kMostImages,
                       " images");
      continue;
    }
    check<DataError>(chunk.tag() == 1,
                     "model_input: found audio, expected tokens (encoded_text) or images");
    for (pbf_reader text = message_of(chunk); text.next();) {
      if (text.tag() != 1) {
        text.skip();
        continue;
      }
      const std::vector<int32_t> more = elements<int32_t, int32_t>(bytes_of(text), "tokens");
      tokens.insert(tokens.end(), more.begin(), more.end());
    }
  }
}

void take_values(WireTensor& tensor, std::string_view bytes, int32_t dtype) {
  tensor.is_integer = dtype == kInt64 || dtype == kInt32;
  switch (dtype) {
    case kFloat32:
      tensor.values = elements<float, double>(bytes, "float32 values");
      return;
    case kInt64:
      tensor.integers = elements<int64_t, int64_t>(bytes, "int64 values");
      return;
    case kInt32:
      tensor.integers = elements<int32_t, int64_t>(bytes, "int32 values");
      return;
    case kBFloat16:
      for (const uint32_t upper : elements<uint16_t, uint32_t>(bytes, "bfloat16 values"))
        tensor.values.push_back(double{std::bit_cast<float>(upper << 16)});
      return;
    default:
      check<DataError>(false, "tensor: found dtype ", dtype,
                       ", expected 1 (float32), 2 (int64), 3 (int32) or 4 (bfloat16)");
  }
}

WireTensor read_tensor(pbf_reader message) {
  WireTensor tensor;
  std::string_view values;
  int32_t dtype = 0;
  while (message.next()) switch (message.tag()) {
      case 1:
        values = bytes_of(message);
        break;
      case 2:
        tensor.is_sparse = true;
        for (pbf_reader sparse = message_of(message); sparse.next();) switch (sparse.tag()) {
            case 1:
              values = bytes_of(sparse);
              break;
            case 2:
              tensor.crow = elements<int64_t, int64_t>(bytes_of(sparse), "crow_indices");
              break;
            case 3:
              tensor.columns = elements<int64_t, int64_t>(bytes_of(sparse), "col_indices");
              break;
            default:
              sparse.skip();
          }
        break;
      case 3:
        dtype = static_cast<int32_t>(integer_of(message));
        break;
      case 4:
        if (message.wire_type() == protozero::pbf_wire_type::length_delimited)
          for (const int64_t size : message.get_packed_int64()) tensor.shape.push_back(size);
        else
          tensor.shape.push_back(integer_of(message));
        check<DataError>(tensor.shape.size() <= kMostDimensions, "tensor: more than ",
                         kMostDimensions, " dimensions");
        break;
      default:
        message.skip();
    }
  for (const int64_t size : tensor.shape)
    check<DataError>(size >= 0, "tensor: found the dimension ", size, ", expected none below 0");
  take_values(tensor, values, dtype);
  return tensor;
}

// An entry of a map: its key, and `read` of its value's field.
template <class Read>
std::string read_entry(pbf_reader entry, const Read& read) {
  std::string key;
  while (entry.next()) {
    if (entry.tag() == 1)
      key = text_of(entry);
    else if (entry.tag() == 2)
      read(entry);
    else
      entry.skip();
  }
  return key;
}

// tensors: those of the request so far.
WireDatum read_datum(pbf_reader message, size_t& tensors) {
  WireDatum datum;
  while (message.next()) {
    if (message.tag() == 1) {
      read_chunk(message_of(message), datum);
    } else if (message.tag() == 2) {
      WireTensor tensor;
      std::string key = read_entry(
          message_of(message), [&](pbf_reader& field) { tensor = read_tensor(message_of(field)); });
      datum.inputs[std::move(key)] = std::move(tensor);
      check<DataError>(++tensors <= kMostTensors, "loss_fn_inputs: more than ", kMostTensors,
                       " tensors in a request; send fewer data in each");
      check<DataError>(datum.inputs.size() <= kMostInputs, "loss_fn_inputs: more than ",
                       kMostInputs);
    } else {
      message.skip();  // spans, which name where tokens come from
    }
  }
  return datum;
}

std::variant<double, std::string> read_config_value(pbf_reader message) {
  std::variant<double, std::string> value = 0.0;
  while (message.next()) {
    if (message.tag() == 1)
      value = double_of(message);
    else if (message.tag() == 2)
      value = text_of(message);
    else
      message.skip();
  }
  return value;
}

ForwardBackwardRequest read_request(pbf_reader message) {
  ForwardBackwardRequest request;
  size_t tensors = 0;
  const auto put = [&](auto& read) {
    std::variant<double, std::string> value = 0.0;
    std::string key = read_entry(message_of(message), [&](pbf_reader& f) { value = read(f); });
    request.config[std::move(key)] = std::move(value);
    check<DataError>(request.config.size() <= kMostInputs, "loss_fn_config: more than ",
                     kMostInputs, " keys");
  };
  const auto number = [](pbf_reader& field) -> std::variant<double, std::string> {
    return double_of(field);
  };
  const auto any = [](pbf_reader& field) { return read_config_value(message_of(field)); };
  while (message.next()) switch (message.tag()) {
      case 1:
        request.model_id = text_of(message);
        break;
      case 2:
        request.seq_id = integer_of(message);
        break;
      case 3:
        check<DataError>(request.data.size() < kMostData, "data: more than ", kMostData,
                         " in a request; send fewer in each");
        request.data.push_back(read_datum(message_of(message), tensors));
        break;
      case 4:
        request.loss_fn = text_of(message);
        break;
      case 5:
        put(number);
        break;
      case 6:
        request.forward_only = integer_of(message) != 0;
        break;
      case 7:
        put(any);
        break;
      default:
        message.skip();
    }
  return request;
}

const char* problem_of(const protozero::exception& e) {
  if (dynamic_cast<const protozero::end_of_buffer_exception*>(&e))
    return "it ends within a field, or a length in it is too large";
  if (dynamic_cast<const protozero::varint_too_long_exception*>(&e))
    return "a number in it has more than 64 bits";
  return "it has a field without a number or of a type that protobuf does not know";
}

}  // namespace

ForwardBackwardRequest read_forward_backward(std::string_view body) {
  try {
    return read_request(pbf_reader(body.data(), body.size()));
  } catch (const protozero::exception& e) {
    throw DataError(str("the body is no ForwardBackwardRequest (protobuf): ", problem_of(e)));
  }
}

std::optional<ForwardBackwardHead> read_forward_backward_head(std::string_view body) try {
  ForwardBackwardHead head;
  for (pbf_reader message(body.data(), body.size()); message.next();) {
    if (message.tag() == 1)
      head.model_id = text_of(message);
    else if (message.tag() == 2)
      head.seq_id = integer_of(message);
    else
      message.skip();
  }
  return head;
} catch (const std::exception&) {
  return std::nullopt;
}

}  // namespace temper::tinker
