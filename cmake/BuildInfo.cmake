# What `syncfree info` says about the build.
# The revision says if the tree has uncommitted changes: figures belong to the sources that were built.
execute_process(
  COMMAND git describe --always --abbrev=12 --exclude=* --dirty=+changes
  WORKING_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}"
  OUTPUT_VARIABLE SYNCFREE_GIT_REVISION OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE no_git)
if(no_git)
  set(SYNCFREE_GIT_REVISION "")
endif()
configure_file(csrc/runtime/build_info.h.in "${CMAKE_CURRENT_BINARY_DIR}/generated/runtime/build_info.h" @ONLY)
target_include_directories(_runtime PRIVATE "${CMAKE_CURRENT_BINARY_DIR}/generated")
