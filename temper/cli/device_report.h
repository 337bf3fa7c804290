// What `temper doctor` says of the devices beside the CPU.
#pragma once

#include <iosfwd>

namespace temper::cli {

// A line for each device of models::device_kinds(): memory, speed of float32 and bfloat16 products,
// bandwidth; "none" and why where there is no GPU.
void print_devices(std::ostream& out);

}  // namespace temper::cli
