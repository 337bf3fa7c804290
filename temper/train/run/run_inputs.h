// The files that a run reads, as ranks compare them before any of them is loaded.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "temper/train/config.h"

namespace temper::train {

// The files that the config names on this host (models::file_digests), by keys and values
// ("data.train[0].path (rows.jsonl)"), and the checkpoint that the run continues from. trains:
// false: the rank has roles of its own, and reads neither rows nor checkpoints. Output files are
// left out.
std::vector<std::pair<std::string, std::string>> run_inputs(RunConfig& config, bool trains);

// When the run was first started, in local time as template_date.h writes it: as recorded by the
// checkpoint that the run resumes from, or else now.
std::string begin_of_run(const RunConfig& config);
// Whether the run goes on from a checkpoint of a version with DataSection::earlier_rules.
bool has_earlier_rules(const RunConfig& config);

}  // namespace temper::train
