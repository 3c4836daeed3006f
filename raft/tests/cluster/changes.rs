//! Members come and go, leadership is handed over.
