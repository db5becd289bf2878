// Copyright (c) the otel-bridge authors. SPDX-License-Identifier: Apache-2.0
//
// What send_something.cpp is without a transport.
#include <cstdio>

int main(int count, char** arguments) {
  std::puts(arguments[count - 1]);
  return 0;
}
