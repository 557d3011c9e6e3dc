// What an index says of a key.
#pragma once
#include "layout.h"

struct Found {
  u32 hint, location;
  // Of a hit, where flags and length of the value are, in an index that knows them.
  const Way *way;
};
