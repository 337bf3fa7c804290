#include "temper/metrics/tfevents.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <vector>

#include "temper/base/file.h"

using namespace temper;

TEST_CASE("crc32c gives the known answers of RFC 3720, appendix B.4") {
  CHECK(crc32c(std::string(32, '\0')) == 0x8a9136aau);
  CHECK(crc32c(std::string(32, '\xff')) == 0x62a8ab43u);
  CHECK(crc32c("123456789") == 0xe3069283u);
}

// tests/golden/make_tfevents_goldens.py
TEST_CASE("event files are byte for byte those of TensorBoard's own writer") {
  const char* root = std::getenv("TEMPER_SOURCE_DIR");
  const std::string golden =
      read_file(std::string(root ? root : ".") + "/tests/golden/tfevents.bin");
  const std::vector<std::pair<std::string, float>> train = {{"train/loss", 2.5f},
                                                            {"train/learning_rate", 2e-5f}};
  const std::vector<std::pair<std::string, float>> eval = {{"eval/loss", 0.1f}};
  const std::string file = tf_record(version_event(1700000000.25)) +
                           tf_record(session_start_event(1700000001.5, 0)) +
                           tf_record(scalar_event(1700000002.0, 1, train)) +
                           tf_record(scalar_event(1700000003.0, 300, eval));
  CHECK(file == golden);
}
