// Copyright (c) the otel-bridge authors. SPDX-License-Identifier: Apache-2.0
//
// Sends what standard input holds, request by request: "SIZE\n" and as many bytes. For each it prints one line of JSON: how the
// transport says it went.
#pragma once

#include <cstdint>
#include <cstdio>
#include <vector>

inline void print_text(const char* text) {
  std::putchar('"');
  for (; *text != '\0'; ++text) {
    if (*text == '"' || *text == '\\') std::putchar('\\');
    std::putchar(*text);
  }
  std::putchar('"');
}

template <class Transport, class Status>
int send_requests(Transport& transport, Status status) {
  std::vector<char> request;
  size_t size = 0;
  while (std::scanf("%zu", &size) == 1) {
    std::getchar();
    request.resize(size);
    if (std::fread(request.data(), 1, size, stdin) != size) return 2;
    const bool sent = transport.send(request.data(), size);
    std::printf("{\"sent\": %s, \"again\": %s, \"wait_ms\": %u, \"accepted\": %llu, \"rejected\": %llu, \"status\": ",
                sent ? "true" : "false", transport.again() ? "true" : "false", static_cast<unsigned>(transport.wait_ms()),
                static_cast<unsigned long long>(transport.accepted()), static_cast<unsigned long long>(transport.rejected()));
    print_text(status(transport));
    std::printf(", \"message\": ");
    print_text(transport.message());
    std::printf("}\n");
    std::fflush(stdout);
  }
  return 0;
}
