// Whether the images that a run read are as its manifest says.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "temper/data/config.h"
#include "temper/train/manifest/manifest.h"

namespace temper::train {

// The images of these lines that are not what they were, with the lines that have them: "PATH: its
// SHA-256 is .., that of the run's was ..". Reads each image once. The rows of `recorded`, the
// run's own section, lie now where `now` says, and images that lay beneath their folders with them.
std::vector<std::pair<const ManifestLine*, std::string>> changed_images(
    const std::vector<const ManifestLine*>& lines, const data::DataSection& recorded,
    const data::DataSection& now);

}  // namespace temper::train
