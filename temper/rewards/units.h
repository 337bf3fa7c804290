// Units behind a number.
#pragma once

#include <string>

namespace temper::rewards {

struct Unit {
  std::string name;  // "cm", "" where there is none or it is not known
  bool percent = false;
};
// Removes the unit from the end of an answer in plain spelling and returns it: \text{ apples}, a
// known word or sign after the number, in the plural too, to a power; and percent signs. Words in
// \text{} that say more than a unit ("or 5", "million") stay.
Unit take_unit(std::string& text);

}  // namespace temper::rewards
