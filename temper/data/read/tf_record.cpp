// The format: tensorflow/core/lib/io/record_writer.h and tensorflow/core/example/example.proto.
#include "temper/data/read/tf_record.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <protozero/pbf_reader.hpp>
#include <string_view>
#include <utility>

#include "temper/base/ascii.h"
#include "temper/base/config/row_names.h"
#include "temper/base/error.h"
#include "temper/base/json.h"
#include "temper/data/read/byte_source.h"
#include "temper/data/read/jsonl.h"
#include "temper/metrics/sinks/crc32c.h"
#include "temper/text/unicode.h"

namespace temper::data {
namespace {

using protozero::pbf_reader;
using protozero::pbf_wire_type;
using protozero::tag_and_type;

// A record: its length, the length's masked checksum, the bytes, their masked checksum; all numbers
// are little-endian, as those of the machines that this is compiled for.
constexpr size_t kLength = sizeof(uint64_t), kSum = sizeof(uint32_t);

template <class Number>
Number number_at(std::string_view bytes) {
  Number value = 0;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

bool is_length(std::string_view head) {
  return head.size() >= kLength + kSum &&
         number_at<uint32_t>(head.substr(kLength)) == masked_crc32c(head.substr(0, kLength));
}

// Whether a file is packed is not in its name alone: TensorFlow's options pack any.
Packing packing_of_head(std::string_view head) {
  if (head.size() < 2 || is_length(head)) return Packing::kNone;
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(head[i]); };
  const bool gzip = byte(0) == 0x1f && byte(1) == 0x8b;
  const bool zlib = (byte(0) & 0x0f) == 8 && (byte(0) * 256 + byte(1)) % 31 == 0;
  return gzip || zlib ? Packing::kZlib : Packing::kNone;
}

class RecordReader {
 public:
  explicit RecordReader(const std::string& path)
      : path_(path), bytes_(ByteSource::open(path, &packing_of_head)) {}

  // The next record's bytes, until the next call; false at the end of the file.
  bool next(std::string_view& record) {
    ++row_;
    if (!fill(1)) return false;
    check<DataError>(fill(kLength + kSum), where(), ": the file ends within a record's length");
    check<DataError>(
        is_length(ahead()), where(), ": the checksum of the record's length is wrong",
        row_ == 1 ? "; it is not a TFRecord file, or compressed otherwise than by gzip or zlib"
                  : "");
    const uint64_t size = number_at<uint64_t>(ahead());
    check<DataError>(size <= kMaxLineBytes, where(), ": a record of ", size,
                     " bytes, more than 1 GiB");
    at_ += kLength + kSum;
    check<DataError>(fill(size + kSum), where(), ": the file ends within the record");
    record = ahead().substr(0, size);
    check<DataError>(number_at<uint32_t>(ahead().substr(size)) == masked_crc32c(record), where(),
                     ": the checksum of the record is wrong");
    at_ += size + kSum;
    return true;
  }
  std::string where() const { return str(path_, ": row ", row_); }

 private:
  std::string_view ahead() const { return std::string_view(buffer_).substr(at_); }
  // Memory grows as bytes are there, whatever a length says.
  bool fill(size_t size) {
    while (buffer_.size() - at_ < size) {
      buffer_.erase(0, std::exchange(at_, 0));
      if (!bytes_->more(buffer_)) return false;
    }
    return true;
  }

  const std::string path_;
  std::unique_ptr<ByteSource> bytes_;
  std::string buffer_;
  size_t at_ = 0;
  int64_t row_ = 0;
};

// How much text the features of a record may still become, all together: 1 GiB, as a row may be.
class TextBudget {
 public:
  explicit TextBudget(const std::string& where) : where_(where) {}
  void spend(size_t bytes) {
    check<DataError>(bytes < left_, where_, ": more than 1 GiB");
    left_ -= bytes;
  }

 private:
  const std::string& where_;
  size_t left_ = kMaxLineBytes;
};

// The JSON of a feature's values: Feature is one of bytes_list = 1, float_list = 2, int64_list = 3,
// each of repeated value = 1, numbers packed or not.
class FeatureText {
 public:
  explicit FeatureText(TextBudget& budget) : budget_(budget) {}

  void read(pbf_reader feature) {
    while (feature.next()) {
      const uint32_t kind = feature.tag();
      if (kind < 1 || kind > 3 || feature.wire_type() != pbf_wire_type::length_delimited) {
        feature.skip();
        continue;
      }
      if (std::exchange(kind_, kind) != kind) clear();  // of a oneof the last one counts
      for (pbf_reader list = feature.get_message(); list.next();) {
        if (list.tag() == 1)
          read_values(list);
        else
          list.skip();
      }
    }
  }
  // Empty: there are no values.
  std::string text() const { return count_ > 1 ? "[" + text_ + "]" : text_; }

 private:
  void clear() {
    text_.clear();
    count_ = 0;
  }

  void read_values(pbf_reader& list) {
    const bool packed = list.wire_type() == pbf_wire_type::length_delimited;
    if (kind_ == 1) {
      const protozero::data_view bytes = list.get_view();
      add_bytes({bytes.data(), bytes.size()});
    } else if (kind_ == 2) {
      if (packed)
        for (const float value : list.get_packed_float()) add_float(value);
      else
        add_float(list.get_float());
    } else {
      if (packed)
        for (const int64_t value : list.get_packed_int64()) add(str(value));
      else
        add(str(list.get_int64()));
    }
  }

  void add(std::string_view json) {
    budget_.spend(json.size() + 1);
    if (count_++ > 0) text_ += ',';
    text_ += json;
  }

  void add_bytes(std::string_view bytes) {
    if (valid_utf8_prefix(bytes) == bytes.size()) return add(dump_json(Json(bytes)));
    std::string file = "{\"bytes\":\"";
    append_base64(bytes, file);
    add(file + "\"}");
  }

  // The shortest digits that are this float: 0.1, not 0.10000000149011612.
  void add_float(float value) {
    if (!std::isfinite(value)) return add("null");
    std::array<char, 32> digits;
    const char* const end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
    const std::string text(digits.data(), static_cast<size_t>(end - digits.data()));
    add(text.find_first_of(".e") == text.npos ? text + ".0" : text);
  }

  TextBudget& budget_;
  uint32_t kind_ = 0;
  std::string text_;
  int64_t count_ = 0;
};

// Calls `entry(name, value)` for the entries of a map<string, message> of field 1: each entry is
// key = 1, value = 2.
template <class Entry>
void each_entry(pbf_reader map, const std::string& where, const Entry& entry) {
  while (map.next(1, pbf_wire_type::length_delimited)) {
    std::string name;
    protozero::data_view value;
    for (pbf_reader parts = map.get_message(); parts.next();) {
      switch (parts.tag_and_type()) {
        case tag_and_type(1, pbf_wire_type::length_delimited):
          name = parts.get_string();
          break;
        case tag_and_type(2, pbf_wire_type::length_delimited):
          value = parts.get_view();
          break;
        default:
          parts.skip();
      }
    }
    check<DataError>(valid_utf8_prefix(name) == name.size(), where,
                     ": a feature's name is no UTF-8");
    entry(name, pbf_reader(value));
  }
}

std::string list_of_features(pbf_reader list, TextBudget& budget) {
  std::string out = "[";
  while (list.next(1, pbf_wire_type::length_delimited)) {
    FeatureText feature(budget);
    feature.read(list.get_message());
    std::string text = feature.text();
    if (text.empty()) budget.spend((text = "null").size() + 1);
    out += (out.size() > 1 ? "," : "") + text;
  }
  return out + "]";
}

// Example: features = 1. SequenceExample: context = 1, feature_lists = 2. Both are maps.
std::string example_line(std::string_view record, const std::string& where) {
  std::map<std::string, std::string> features;  // of a map's key the last value counts
  TextBudget budget(where);
  bool has_features = false;
  try {
    for (pbf_reader fields(record.data(), record.size()); fields.next();) {
      has_features = true;
      switch (fields.tag_and_type()) {
        case tag_and_type(1, pbf_wire_type::length_delimited):
          each_entry(fields.get_message(), where, [&](const std::string& name, pbf_reader value) {
            budget.spend(name.size());
            FeatureText feature(budget);
            feature.read(value);
            features[name] = feature.text();
          });
          break;
        case tag_and_type(2, pbf_wire_type::length_delimited):
          each_entry(fields.get_message(), where, [&](const std::string& name, pbf_reader value) {
            budget.spend(name.size());
            features[name] = list_of_features(value, budget);
          });
          break;
        default:
          throw DataError(str(where, ": not a tf.train.Example: it has the field ", fields.tag()));
      }
    }
  } catch (const protozero::exception&) {
    throw DataError(where + ": not a tf.train.Example: its fields cannot be read");
  }
  check<DataError>(has_features, where, ": an empty record, expected a tf.train.Example");
  std::string line = "{";
  for (const auto& [name, text] : features) {
    if (text.empty()) continue;
    check<DataError>(line.size() + text.size() < kMaxLineBytes, where, ": more than 1 GiB");
    line += (line.size() > 1 ? "," : "") + dump_json(Json(name)) + ":" + text;
  }
  return line + "}\n";
}

}  // namespace

bool is_tf_record(const std::string& path) {
  return is_tf_record_name(std::filesystem::path(path).filename().string());
}

FileDescriptor open_tf_record(const std::string& path, const UnpackLimits& limits) {
  RecordReader records(path);
  UnpackedFile out(path, limits);
  for (std::string_view record; records.next(record);) {
    const std::string line = example_line(record, records.where());
    out.write(line.data(), static_cast<int64_t>(line.size()));
  }
  return out.release();
}

}  // namespace temper::data
