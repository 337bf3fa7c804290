// What a run is made from, as the manifest's lines of inputs record it.
#pragma once

#include <string>
#include <vector>

#include "temper/dist/mesh.h"
#include "temper/train/config.h"
#include "temper/train/manifest/manifest.h"

namespace temper::train {

// The members of a line of inputs: lists `rows`, `base`, `adapter`, `tokenizer`, `template` and
// `others` of {key, name, bytes, sha256}, each where there are any, `config`, `mesh` and
// `program`. The files are listed now and read by the result.
Manifest::MakeInputs manifest_inputs(RunConfig& config, const dist::Mesh& mesh);

// The SHA-256 of the settings on which results depend: not those of places, sinks, saves and ranks.
std::string settings_digest(RunConfig& config);
// {"ranks": all of the run, "data": ..}: and those of the axes that have more than one.
Json mesh_of(RunConfig& config, const dist::Mesh& mesh);

// {"version": .., "sha256": ..} of the program, or the library, that this code is in.
Json program_of();

// The files of a line of inputs that are not here as they were: "data.train (rows.jsonl): found ..,
// expected ..". Reads those files.
std::vector<std::string> changed_files(RunConfig& config, const Json& inputs);

}  // namespace temper::train
