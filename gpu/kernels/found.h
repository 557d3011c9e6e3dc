// What an index says of a key.
#pragma once
#include "layout.h"

struct Found {
  u32 hint;
  // Of a hit the item's; of a row its way.
  u32 location;
  // Of a hit, where flags and length of the value are, in an index that knows them.
  const Way *way;
};
