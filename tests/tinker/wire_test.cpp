// Messages of clients: what they say, and what hostile ones do not break.
#include "temper/tinker/wire.h"

#include <doctest/doctest.h>
#include <zstd.h>

#include <cstring>
#include <protozero/pbf_message.hpp>
#include <protozero/pbf_writer.hpp>
#include <random>

#include "temper/base/error.h"

using namespace temper;
using namespace temper::tinker;

namespace {

template <class T>
std::string bytes(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

template <class T>
std::string dense(const std::vector<T>& values, int dtype, const std::vector<int64_t>& shape) {
  std::string text;
  protozero::pbf_writer tensor(text);
  tensor.add_bytes(1, bytes(values));
  tensor.add_enum(3, dtype);
  tensor.add_packed_int64(4, shape.begin(), shape.end());
  return text;
}

void add_input(protozero::pbf_writer& datum, const std::string& name, const std::string& tensor) {
  protozero::pbf_writer entry(datum, 2);
  entry.add_string(1, name);
  entry.add_message(2, tensor);
}

std::string request() {
  std::string text;
  protozero::pbf_writer message(text);
  message.add_string(1, "s:train:0");
  message.add_int32(2, 7);
  {
    protozero::pbf_writer datum(message, 3);
    {
      protozero::pbf_writer chunk(datum, 1), text_chunk(chunk, 1);
      text_chunk.add_bytes(1, bytes<int32_t>({1, 2, 3}));
    }
    add_input(datum, "target_tokens", dense<int64_t>({2, 3, 4}, 2, {3}));
    add_input(datum, "weights", dense<float>({0, 1, 0.5f}, 1, {3}));
  }
  message.add_string(4, "ppo");
  {
    protozero::pbf_writer entry(message, 5);
    entry.add_string(1, "clip_low_threshold");
    entry.add_double(2, 0.75);
  }
  message.add_bool(6, true);
  return text;
}

}  // namespace

TEST_CASE("a request is read as it was written") {
  const ForwardBackwardRequest r = read_forward_backward(request());
  CHECK(r.model_id == "s:train:0");
  CHECK(r.seq_id == 7);
  CHECK(r.forward_only);
  CHECK(r.loss_fn == "ppo");
  CHECK(std::get<double>(r.config.at("clip_low_threshold")) == 0.75);
  REQUIRE(r.data.size() == 1);
  CHECK(r.data[0].tokens == std::vector<int32_t>{1, 2, 3});
  const WireTensor& targets = r.data[0].inputs.at("target_tokens");
  CHECK(targets.is_integer);
  CHECK(targets.integers == std::vector<int64_t>{2, 3, 4});
  CHECK(targets.shape == std::vector<int64_t>{3});
  CHECK(r.data[0].inputs.at("weights").values == std::vector<double>{0, 1, 0.5});
}

TEST_CASE("a message that is cut or changed is read or refused, and nothing else") {
  const std::string whole = request();
  for (size_t n = 0; n < whole.size(); ++n) {
    try {
      read_forward_backward(whole.substr(0, n));
    } catch (const DataError&) {
    }
  }
  std::mt19937 random(5);
  for (int i = 0; i < 20000; ++i) {
    std::string changed = whole;
    for (int k = 0; k < 3; ++k) changed[random() % changed.size()] = static_cast<char>(random());
    try {
      read_forward_backward(changed);
    } catch (const DataError&) {
    }
  }
  // Half a float.
  std::string text;
  {
    protozero::pbf_writer message(text), datum(message, 3);
    std::string tensor;
    protozero::pbf_writer half(tensor);
    half.add_bytes(1, std::string("abcdef"));
    half.add_enum(3, 1);
    add_input(datum, "weights", tensor);
  }
  CHECK_THROWS_AS(read_forward_backward(text), DataError);
}

TEST_CASE("images stand between the tokens of text; audio and other sizes are refused") {
  const std::string tokens("\5\0\0\0\6\0\0\0", 8);
  const auto with = [&](int field, int member, const std::string& bytes) {
    std::string text;
    {
      protozero::pbf_writer message(text), datum(message, 3);
      for (const int chunk : {1, field, 1}) {
        protozero::pbf_writer one(datum, 1), content(one, static_cast<uint32_t>(chunk));
        content.add_bytes(static_cast<uint32_t>(chunk == 1 ? 1 : member),
                          chunk == 1 ? tokens : bytes);
        if (chunk == 2) content.add_int32(3, 9);
      }
    }
    return text;
  };
  const WireDatum datum = read_forward_backward(with(2, 1, "PNG")).data.at(0);
  CHECK(datum.tokens == std::vector<int32_t>{5, 6, 5, 6});
  REQUIRE(datum.images.size() == 1);
  CHECK(datum.images[0].at == 2);
  CHECK(datum.images[0].source.bytes == "PNG");
  CHECK(datum.images[0].expected_tokens == 9);
  const auto refused = [&](const std::string& text, const char* why) {
    CHECK_THROWS_WITH_AS(read_forward_backward(text), doctest::Contains(why), DataError);
  };
  refused(with(3, 1, "x"), "found audio");
  refused(with(2, 1, ""), "without data");
  refused(with(2, 4, ""), "override_dimensions");
}

TEST_CASE("of a request that cannot be read, its model and number are known") {
  std::string text = request();
  {
    protozero::pbf_writer message(text);
    protozero::pbf_writer datum(message, 3), chunk(datum, 1), audio(chunk, 3);
    audio.add_string(1, "sound");
  }
  CHECK_THROWS_AS(read_forward_backward(text), DataError);
  const auto head = read_forward_backward_head(text);
  REQUIRE(head);
  CHECK(head->model_id == "s:train:0");
  CHECK(head->seq_id == 7);
  CHECK(!read_forward_backward_head(std::string(100, '\xff')));
}

TEST_CASE("data and tensors are counted: empty ones are small in a message alone") {
  std::string data, inputs;
  for (int i = 0; i < 65536; ++i) data += std::string("\x1a\0", 2);
  CHECK(read_forward_backward(data).data.size() == 65536);
  CHECK_THROWS_AS(read_forward_backward(data + std::string("\x1a\0", 2)), DataError);
  std::string datum;
  protozero::pbf_writer writer(datum);
  for (int i = 0; i < 16; ++i)
    add_input(writer, std::string(1, static_cast<char>('a' + i)), "\x18\x01");
  protozero::pbf_writer message(inputs);
  for (int i = 0; i < (1 << 14); ++i) message.add_message(3, datum);
  CHECK(read_forward_backward(inputs).data.size() == 1 << 14);
  message.add_message(3, datum);
  CHECK_THROWS_AS(read_forward_backward(inputs), DataError);
}

TEST_CASE("results: a record for data of one shape, byte offsets, metrics") {
  const std::string text = write_forward_backward({{{-1, -2}, 0}, {{-3}, 0}, {{-4, -5, -6, -7}, 2}},
                                                  {{"loss:sum", 2.5}});
  std::vector<std::pair<int64_t, std::vector<int64_t>>> records;  // data, offsets
  double loss = 0;
  for (protozero::pbf_reader message(text); message.next();) {
    if (message.tag() == 3) {
      for (auto entry = message.get_message(); entry.next();)
        if (entry.tag() == 2)
          loss = entry.get_double();
        else
          CHECK(entry.get_string() == "loss:sum");
    } else if (message.tag() == 2) {
      auto& [count, offsets] = records.emplace_back();
      for (auto record = message.get_message(); record.next();) {
        if (record.tag() == 3) {
          count = record.get_int64();
        } else if (record.tag() == 2) {
          for (auto entry = record.get_message(); entry.next();) {
            if (entry.tag() != 2) {
              entry.skip();
              continue;
            }
            for (auto tensor = entry.get_message(); tensor.next();) {
              if (tensor.tag() != 2) {
                tensor.skip();
                continue;
              }
              const auto view = tensor.get_view();
              offsets.resize(view.size() / 8);
              std::memcpy(offsets.data(), view.data(), view.size());
            }
          }
        } else {
          record.skip();
        }
      }
    } else {
      message.skip();
    }
  }
  CHECK(loss == 2.5);
  REQUIRE(records.size() == 2);
  CHECK(records[0] == std::pair<int64_t, std::vector<int64_t>>{2, {0, 8, 12}});
  CHECK(records[1] == std::pair<int64_t, std::vector<int64_t>>{1, {0, 16}});
}

TEST_CASE("a compressed body is bounded by its size when decompressed") {
  const std::string text(1 << 20, 'a');
  std::string packed(ZSTD_compressBound(text.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), text.data(), text.size(), 3));
  CHECK(decompress_zstd(packed, text.size()) == text);
  CHECK_THROWS_AS(decompress_zstd(packed, text.size() - 1), DataError);
  CHECK_THROWS_AS(decompress_zstd(packed.substr(0, packed.size() / 2), text.size()), DataError);
  CHECK_THROWS_AS(decompress_zstd("no frame at all", 100), DataError);
}
