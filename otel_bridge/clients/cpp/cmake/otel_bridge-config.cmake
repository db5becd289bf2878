# The C++ client of otel-bridge as a CMake package. It has headers only, so finding it is including this file:
#
#   find_package(otel_bridge REQUIRED)      # -Dotel_bridge_DIR=the folder of this file
#   target_link_libraries(app PRIVATE otel_bridge::client)
#
# ExecuTorch is the app's to find: its headers, with ET_EVENT_TRACER_ENABLED as its libraries were built with.
if(NOT TARGET otel_bridge::client)
  add_library(otel_bridge::client INTERFACE IMPORTED)
  get_filename_component(_otel_bridge_headers "${CMAKE_CURRENT_LIST_DIR}/.." ABSOLUTE)
  set_target_properties(otel_bridge::client PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${_otel_bridge_headers}"
    INTERFACE_COMPILE_FEATURES cxx_std_17)
  unset(_otel_bridge_headers)
endif()
