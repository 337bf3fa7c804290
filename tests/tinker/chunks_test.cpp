// Image chunks of data and prompts: which tokens they become, and what a model makes of them.
#include "temper/tinker/chunks.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/models/files/load.h"
#include "temper/tinker/forward_backward.h"
#include "temper/tinker/samples.h"
#include "tests/golden.h"

using namespace temper;
using namespace temper::tinker;

namespace {

constexpr int32_t kPad = 7;  // the golden model's image token

std::string picture(const char* name) { return read_file(golden_path("images/files/") + name); }

// The golden model with a processor of its patches: grey.png, 30 x 20, becomes 4 x 2 tokens.
struct SeeingModel {
  SeeingModel() {
    std::filesystem::remove_all(path);
    std::filesystem::create_directories(path);
    for (const char* file : {"config.json", "model.safetensors"})
      std::filesystem::copy_file(golden_path("vision/qwen3_vl/") + file, path + "/" + file);
    const Json settings{{"image_processor_type", "Qwen2VLImageProcessorFast"},
                        {"patch_size", 4},
                        {"temporal_patch_size", 2},
                        {"merge_size", 2},
                        {"size", {{"shortest_edge", 64}, {"longest_edge", 4096}}},
                        {"image_mean", {0.5, 0.5, 0.5}},
                        {"image_std", {0.5, 0.5, 0.5}}};
    write_file_atomic(path + "/preprocessor_config.json", settings.dump());
    format = {data::find_image_format(path, nullptr), nullptr};
  }
  ~SeeingModel() { std::filesystem::remove_all(path); }
  const std::string path = temporary_directory() + "/temper_chunks_" + std::to_string(::getpid());
  ChunkFormat format;
};

WireDatum datum_of(const std::vector<int32_t>& tokens, std::vector<WireImage> images,
                   int64_t length) {
  WireDatum datum{.tokens = tokens, .images = std::move(images), .inputs = {}};
  WireTensor& targets = datum.inputs["target_tokens"];
  targets.is_integer = true;
  targets.shape = {length};
  for (int64_t i = 0; i < length; ++i) targets.integers.push_back(10 + i % 5);
  return datum;
}

WireImage chunk_of(const std::string& bytes, size_t at, std::optional<int64_t> expected = {}) {
  return {.at = at, .source = {.bytes = bytes}, .expected_tokens = expected};
}

}  // namespace

TEST_CASE("an image chunk becomes the tokens that the processor gives, where it stands") {
  const SeeingModel model;
  REQUIRE(model.format.images);
  std::vector<int32_t> tokens{8, 9, 5};
  const ImageSpans spans =
      place_chunks(model.format, {chunk_of(picture("grey.png"), 1, 8)}, tokens, "x");
  std::vector<int32_t> expected{8};
  expected.insert(expected.end(), 8, kPad);
  expected.insert(expected.end(), {9, 5});
  CHECK(tokens == expected);
  REQUIRE(spans.size() == 1);
  CHECK(spans[0].begin == 1);
  CHECK(spans[0].count == 8);
  CHECK(spans[0].first == 0);
  const auto refused = [](const ChunkFormat& format, const WireImage& image,
                          std::vector<int32_t> text, const char* why) {
    CHECK_THROWS_WITH_AS(place_chunks(format, {image}, text, "data[3]"), doctest::Contains(why),
                         DataError);
  };
  refused(model.format, chunk_of(picture("grey.png"), 1, 11), {8, 9},
          "data[3]: image 1: expected_tokens: found 11, expected 8 for 30 x 20 pixels");
  ChunkFormat small = model.format;
  small.most_pixels = 2 * 600 - 1;
  CHECK_NOTHROW(place_chunks(small, {chunk_of(picture("grey.png"), 1)}, tokens = {8, 9}, "x"));
  CHECK_THROWS_WITH_AS(
      place_chunks(small, {chunk_of(picture("grey.png"), 0), chunk_of(picture("grey.png"), 1)},
                   tokens = {8, 9}, "x"),
      doctest::Contains("x: image 2: with it the images have 1200 pixels together, and this"),
      DataError);
  refused(model.format, chunk_of("text", 1), {8, 9}, "data[3]: image 1: not a JPEG");
  refused(model.format, chunk_of(picture("grey.png"), 1), {8, kPad}, "found token 7");
  refused({}, chunk_of(picture("grey.png"), 1), {8, 9}, "the model reads text alone");
}

TEST_CASE("a datum with an image has the log-probabilities that training gives its row") {
  const SeeingModel seeing;
  const auto model = models::load_model(seeing.path);
  AdapterPlaces places(*model);
  TrainedAdapter adapter(places, {.rank = 4, .seed = 1});
  const auto batch_of = [&](const char* name, bool forward_only) {
    ForwardBackwardRequest request;
    request.loss_fn = "cross_entropy";
    request.forward_only = forward_only;
    request.data.push_back(datum_of({8, 9, 5, 6}, {chunk_of(picture(name), 1)}, 12));
    return check_batch(
        std::move(request),
        {.vocabulary = model->vocab_size, .most_positions = 100, .chunks = seeing.format});
  };
  const auto result = [&](const LossBatch& batch) {
    ForwardBackward pass(*model, adapter, batch, 100);
    while (!pass.step()) {
    }
    return pass.result();
  };
  const LossBatch batch = batch_of("grey.png", false);
  REQUIRE(batch.tokens.at(0).size() == 12);
  // The row as a training verb packs it: label i + 1 is the target of place i.
  std::vector<int32_t> labels(12, -100);
  for (size_t i = 1; i < 12; ++i) labels[i] = static_cast<int32_t>(10 + (i - 1) % 5);
  train::ForwardPass row;
  row.add({{{.tokens = batch.tokens[0], .labels = labels, .images = batch.images[0]}}}, 0);
  const at::Tensor expected = train::token_logp(*model, row, {}).logp.detach().contiguous();
  const std::string bytes(reinterpret_cast<const char*>(expected.const_data_ptr<float>()),
                          expected.nbytes());
  const std::string found = result(batch);
  CHECK(found.find(bytes) != found.npos);
  CHECK(found == result(batch_of("grey.png", true)));
  CHECK(found != result(batch_of("rgb.png", true)));
  adapter.step({.learning_rate = 1e-2});
  CHECK(found != result(batch_of("grey.png", true)));
}

TEST_CASE("a broken image is read where its pass is made, and fails its request alone") {
  const SeeingModel seeing;
  const auto model = models::load_model(seeing.path);
  AdapterPlaces places(*model);
  TrainedAdapter first(places, {.rank = 4, .seed = 1}), second(places, {.rank = 4, .seed = 2});
  const auto batch_of = [&](const std::string& bytes) {
    ForwardBackwardRequest request;
    request.loss_fn = "cross_entropy";
    request.data.push_back(datum_of({8, 9, 5, 6}, {chunk_of(bytes, 1)}, 12));
    return check_batch(
        std::move(request),
        {.vocabulary = model->vocab_size, .most_positions = 100, .chunks = seeing.format});
  };
  const std::string grey = picture("grey.png");
  ForwardBackward broken(*model, first, batch_of(grey.substr(0, grey.size() / 2)), 100),
      whole(*model, second, batch_of(grey), 100);
  ForwardBackward* const together[] = {&broken, &whole};
  CHECK(ForwardBackward::step_together(together) == "");
  CHECK_THROWS_WITH_AS(broken.done(), doctest::Contains("data[0]: image 1: "), DataError);
  CHECK(whole.done());
}

TEST_CASE("a prompt to sample from has chunks of images, whose wrong ones are named") {
  const SeeingModel seeing;
  const auto base64 =
      R"(iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNoAAAAggCBd81ytgAAAABJRU5ErkJggg==)";
  const auto read = [&](const Json& chunk) {
    return read_sample({{"prompt",
                         {{"chunks",
                           {{{"type", "encoded_text"}, {"tokens", {8, 9}}},
                            chunk,
                            {{"type", "encoded_text"}, {"tokens", {5}}}}}}}},
                       61, 100, seeing.format);
  };
  const SampleRequest request = read({{"type", "image"}, {"data", base64}, {"format", "png"}});
  REQUIRE(request.images.size() == 1);
  CHECK(request.images[0].begin == 2);
  CHECK(std::ssize(request.prompt) == 3 + request.images[0].count);
  const std::string uri = std::string("data:image/png;base64,") + base64;
  const Json pointer{{"type", "image_asset_pointer"}, {"location", uri}, {"format", "png"}};
  CHECK((read(pointer).images == request.images));
  const auto refused = [&](const Json& chunk, const char* why) {
    CHECK_THROWS_WITH_AS(read(chunk), doctest::Contains(why), DataError);
  };
  refused({{"type", "image"}, {"data", "x*"}}, "no base64");
  refused({{"type", "image"}, {"format", "png"}}, "the `data` of an image, in base64");
  refused({{"type", "image"}, {"data", base64}, {"expected_tokens", 1000}}, "expected_tokens");
  refused({{"type", "image"}, {"data", base64}, {"expected_tokens", "4"}}, "a whole number");
  refused({{"type", "image_asset_pointer"}, {"location", "/etc/passwd"}},
          "nothing else is fetched");
  refused({{"type", "image_asset_pointer"}, {"location", "http://a/b.png"}}, "is fetched");
  refused({{"type", "dmel"}}, "chunks of tokens (encoded_text) or images");
}
